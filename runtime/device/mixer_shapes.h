// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shapes and operands of the operators of linear mixers, and of gates. Rows that lie `row` elements apart are
// parts of wider rows, the output of one product.

#include <cstdint>

namespace mpt::runtime {

/// y [b*s, channels] = SiLU of a causal convolution of each channel over `length` tokens. x [b*s, channels]
/// has rows `row` apart. In w [channels, length] the last element is for the token itself.
struct ConvolutionShape {
  int64_t batch = 0, sequence = 0, channels = 0, length = 0;
  int64_t row = 0;
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t read() const { return tokens() == 0 ? 0 : (tokens() - 1) * row + channels; }
};

/// The gated delta rule (arXiv:2412.06464, section 3) in chunks of tokens. For each token a head's state
/// S [key_dim, head_dim] is multiplied by exp(-exp(decay) softplus(a + step_bias)). Then it grows by
/// k (sigmoid(b) (v - S^T k))^T, and the output is S^T q. Queries and keys are divided by their lengths, and
/// queries by sqrt(key_dim). Neighbouring heads share a key head.
struct DeltaShape {
  int64_t batch = 0, sequence = 0, heads = 0, key_heads = 0;
  int64_t head_dim = 0, key_dim = 0;
  int64_t chunk = 64;
  int64_t row = 0;  // of the gates
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t keys() const { return key_heads * key_dim; }
  constexpr int64_t values() const { return heads * head_dim; }
  constexpr int64_t columns() const { return 2 * keys() + values(); }
  /// Tokens of a chunk, if the sequence has so many.
  constexpr int64_t part() const { return chunk < sequence ? chunk : sequence; }
  constexpr int64_t chunks() const { return (sequence + chunk - 1) / chunk; }
  constexpr int64_t read_gates() const { return tokens() == 0 ? 0 : (tokens() - 1) * row + 2 * heads; }

  /// Numbers of a head of one sequence: its state and those of a chunk. Backward has the state before each
  /// chunk and the gradients of queries and keys as well.
  constexpr int64_t forward_room_of_head() const {
    const int64_t c = part();
    return key_dim * head_dim + c * (2 * key_dim + 2 * head_dim) + 3 * c * c + 4 * c;
  }
  constexpr int64_t backward_room_of_head() const {
    const int64_t c = part();
    return forward_room_of_head() + (chunks() * key_dim * head_dim) + c * head_dim + 2 * c * c +
           2 * sequence * key_dim + 2;
  }
  constexpr int64_t forward_room() const { return batch * heads * forward_room_of_head(); }
  constexpr int64_t backward_room() const { return batch * heads * backward_room_of_head(); }
};

/// qkv [b*s, columns()]: queries and keys of key heads, and values; gates [b*s, 2 heads], rows `row` apart: b
/// of all heads, then a; decay and step_bias [heads].
struct DeltaInputs {
  const void *qkv = nullptr, *gates = nullptr, *decay = nullptr, *step_bias = nullptr;
};
/// Of these; the last two accumulate, in full precision.
struct DeltaGradients {
  void *qkv = nullptr, *gates = nullptr, *decay = nullptr, *step_bias = nullptr;
};

/// y = RMS norm of each head of x, times a scale [head_dim] for all of them, times SiLU of the gate.
/// x, y [tokens, heads * head_dim]; the gate as wide, rows `row` apart.
struct GatedNormShape {
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t row = 0;
  double epsilon = 1e-6;
  constexpr int64_t columns() const { return heads * head_dim; }
  constexpr int64_t read_gate() const { return tokens == 0 ? 0 : (tokens - 1) * row + columns(); }
};

/// y [rows, columns] = x times the sigmoid of a gate [rows, gates], each for columns / gates neighbours.
struct GateShape {
  int64_t rows = 0, columns = 0, gates = 0;
  constexpr int64_t width() const { return columns / gates; }
};

/// Places in DeltaShape's rooms for one head of one sequence.
template <class S>
struct DeltaRoom {
  // state [key_dim, head_dim]. q, k [c, key_dim]. errors, updates [c, head_dim]. qk, kk, and decays between
  // tokens [c, c]. Logarithms of decays up to a token, betas, and their gradients [c].
  S *state, *q, *k, *errors, *updates, *qk, *kk, *decays, *log_decay, *beta, *d_log_decay, *d_beta;
  // In backward alone: states [chunks, key_dim, head_dim], d_updates [c, head_dim]. d_q, d_k [s, key_dim].
  S *states, *d_updates, *d_qk, *d_kk, *d_q, *d_k, *d_decay, *d_step_bias;

  constexpr DeltaRoom(const DeltaShape& s, S* base, bool backward, int64_t head_of_all) {
    const int64_t c = s.part(), state_size = s.key_dim * s.head_dim;
    S* at = base + head_of_all * (backward ? s.backward_room_of_head() : s.forward_room_of_head());
    const auto take = [&](int64_t count) {
      S* const taken = at;
      at += count;
      return taken;
    };
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
    states = take(backward ? s.chunks() * state_size : 0);
    d_updates = take(c * s.head_dim);
    d_qk = take(c * c);
    d_kk = take(c * c);
    d_q = take(s.sequence * s.key_dim);
    d_k = take(s.sequence * s.key_dim);
    d_decay = take(1);
    d_step_bias = take(1);
  }
};

}  // namespace mpt::runtime
