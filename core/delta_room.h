// SPDX-License-Identifier: Apache-2.0
#pragma once

// The work memory of one head of one sequence under the gated delta rule (DeltaShape in
// runtime/device/operator_shapes.h). Kernels find its parts here, and the memory model its size.

#include <cstdint>

namespace mpt {

struct DeltaRoomSizes {
  int64_t sequence = 0, head_dim = 0, key_dim = 0, chunk = 64;
  /// Tokens of a chunk; all tokens if the sequence is shorter.
  constexpr int64_t part() const { return chunk < sequence ? chunk : sequence; }
  constexpr int64_t chunks() const { return (sequence + chunk - 1) / chunk; }
  constexpr int64_t state() const { return key_dim * head_dim; }
};

template <class S>
struct DeltaRoom {
  // state [key_dim, head_dim]; in backward it is the state's gradient. q, k [c, key_dim] of a chunk's tokens.
  S *state, *q, *k;
  // In backward alone: states before each chunk [chunks, key_dim, head_dim]; states before each token of one
  // chunk [c, key_dim, head_dim]; a token's update and the gradient of its error [head_dim]; d_q, d_k [s,
  // key_dim].
  S *states, *inside, *update, *d_error, *d_q, *d_k, *d_decay, *d_step_bias;
  int64_t numbers = 0;  // total count

  /// With `base` null it only counts.
  constexpr DeltaRoom(const DeltaRoomSizes& s, S* base, bool backward) {
    const auto take = [&](int64_t count) {
      S* const taken = base == nullptr ? nullptr : base + numbers;
      numbers += count;
      return taken;
    };
    const auto take_in_backward = [&](int64_t count) { return take(backward ? count : 0); };
    state = take(s.state());
    q = take(s.part() * s.key_dim);
    k = take(s.part() * s.key_dim);
    states = take_in_backward(s.chunks() * s.state());
    inside = take_in_backward(s.part() * s.state());
    update = take_in_backward(s.head_dim);
    d_error = take_in_backward(s.head_dim);
    d_q = take_in_backward(s.sequence * s.key_dim);
    d_k = take_in_backward(s.sequence * s.key_dim);
    d_decay = take_in_backward(1);
    d_step_bias = take_in_backward(1);
  }
};

/// Count of numbers in such a work memory.
constexpr int64_t delta_room_numbers(const DeltaRoomSizes& sizes, bool backward) {
  return DeltaRoom<char>(sizes, nullptr, backward).numbers;
}

}  // namespace mpt
