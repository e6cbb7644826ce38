// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shapes and operands of what mixers of linear cost are made of, and of gates. Rows that lie `row` elements
// apart are parts of wider rows: of what one product made.

#include <cstdint>

namespace mpt::runtime {

/// y = SiLU of a causal convolution of each channel over `length` tokens. x [b*s, channels], rows `row`
/// apart; w [channels, length], whose last element is for the token itself; y [b*s, channels].
struct ConvolutionShape {
  int64_t batch = 0, sequence = 0, channels = 0, length = 0;
  int64_t row = 0;
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t read() const { return tokens() == 0 ? 0 : (tokens() - 1) * row + channels; }
};

/// The gated delta rule (arXiv:2412.06464, section 3) in chunks of tokens. Of each head and token: the state
/// S [key_dim, head_dim] decays by exp(g), g = -exp(decay) softplus(a + step_bias), and gets
/// k (beta (v - S^T k))^T with beta = sigmoid(b); the output is S^T q. Queries and keys are divided by their
/// lengths, queries by sqrt(key_dim), too. Heads share those of one key head in runs.
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

  /// Numbers that a head of one sequence works with: its state, and those of a chunk; on the way back, too,
  /// the state before each chunk and the gradients of queries and keys.
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

/// Where the numbers of DeltaShape's rooms lie for one head of one sequence.
template <class S>
struct DeltaRoom {
  // [key_dim, head_dim]; q, k [c, key_dim]; errors, updates [c, head_dim]; products of queries and keys, of
  // keys, and decays between tokens [c, c]; decays up to a token, betas, and gradients of both [c].
  S *state, *q, *k, *errors, *updates, *qk, *kk, *decays, *log_decay, *beta, *d_log_decay, *d_beta;
  // The rest on the way back alone. [chunks, key_dim, head_dim]; [c, head_dim]; [c, c]; [s, key_dim].
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
