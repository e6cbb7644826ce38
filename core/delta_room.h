// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory that one head of one sequence works in under the gated delta rule in chunks (DeltaShape in
// runtime/device/mixer_shapes.h). Kernels find its parts here, and the memory model its size.

#include <cstdint>

namespace mpt {

struct DeltaRoomSizes {
  int64_t sequence = 0, head_dim = 0, key_dim = 0, chunk = 64;
  /// Tokens of a chunk, if the sequence has so many.
  constexpr int64_t part() const { return chunk < sequence ? chunk : sequence; }
  constexpr int64_t chunks() const { return (sequence + chunk - 1) / chunk; }
};

template <class S>
struct DeltaRoom {
  // state [key_dim, head_dim]. q, k [c, key_dim]. errors, updates [c, head_dim]. qk, kk, and decays between
  // tokens [c, c]. Logarithms of decays up to a token, betas, and their gradients [c].
  S *state, *q, *k, *errors, *updates, *qk, *kk, *decays, *log_decay, *beta, *d_log_decay, *d_beta;
  // In backward alone: states before each chunk [chunks, key_dim, head_dim], d_updates [c, head_dim], d_qk,
  // d_kk [c, c], d_q, d_k [s, key_dim].
  S *states, *d_updates, *d_qk, *d_kk, *d_q, *d_k, *d_decay, *d_step_bias;
  int64_t numbers = 0;  // in all

  /// `base` null: it only counts.
  constexpr DeltaRoom(const DeltaRoomSizes& s, S* base, bool backward) {
    const int64_t c = s.part(), state_size = s.key_dim * s.head_dim;
    const auto take = [&](int64_t count) {
      S* const taken = base == nullptr ? nullptr : base + numbers;
      numbers += count;
      return taken;
    };
    const auto take_in_backward = [&](int64_t count) { return take(backward ? count : 0); };
    state = take(state_size);
    q = take(c * s.key_dim);
    k = take(c * s.key_dim);
    errors = take(c * s.head_dim);
    updates = take(c * s.head_dim);
    qk = take(c * c);
    kk = take(c * c);
    decays = take(c * c);
    log_decay = take(c);
    beta = take(c);
    d_log_decay = take(c);
    d_beta = take(c);
    states = take_in_backward(s.chunks() * state_size);
    d_updates = take_in_backward(c * s.head_dim);
    d_qk = take_in_backward(c * c);
    d_kk = take_in_backward(c * c);
    d_q = take_in_backward(s.sequence * s.key_dim);
    d_k = take_in_backward(s.sequence * s.key_dim);
    d_decay = take_in_backward(1);
    d_step_bias = take_in_backward(1);
  }
};

/// Numbers of such a room.
constexpr int64_t delta_room_numbers(const DeltaRoomSizes& sizes, bool backward) {
  return DeltaRoom<char>(sizes, nullptr, backward).numbers;
}

}  // namespace mpt
