// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shapes and operands of the operators of linear mixers, and of gates. Rows with a stride of `row` elements
// are parts of wider rows, the output of one product.

#include <cstdint>

#include "core/delta_room.h"

namespace mpt::runtime {

/// y [b*s, channels] = SiLU of a causal convolution of each channel over `length` tokens. x [b*s, channels]
/// has rows with stride `row`. In w [channels, length] the last element is for the token itself.
struct ConvolutionShape {
  int64_t batch = 0, sequence = 0, channels = 0, length = 0;
  int64_t row = 0;
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t read() const { return tokens() == 0 ? 0 : (tokens() - 1) * row + channels; }
};

/// The gated delta rule (arXiv:2412.06464, section 3). For each token a head's state S [key_dim, head_dim] is
/// multiplied by exp(-exp(decay) softplus(a + step_bias)). Then k (sigmoid(b) (v - S^T k))^T is added, and
/// the output is S^T q. Queries and keys are divided by their lengths, and queries by sqrt(key_dim).
/// Neighbouring heads share a key head.
struct DeltaShape {
  int64_t batch = 0, sequence = 0, heads = 0, key_heads = 0;
  int64_t head_dim = 0, key_dim = 0;
  int64_t chunk = 64;  // tokens between two states that backward keeps
  int64_t row = 0;     // of the gates
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t keys() const { return key_heads * key_dim; }
  constexpr int64_t values() const { return heads * head_dim; }
  constexpr int64_t columns() const { return 2 * keys() + values(); }
  constexpr DeltaRoomSizes of_head() const { return {sequence, head_dim, key_dim, chunk}; }
  constexpr int64_t part() const { return of_head().part(); }
  constexpr int64_t chunks() const { return of_head().chunks(); }
  constexpr int64_t read_gates() const { return tokens() == 0 ? 0 : (tokens() - 1) * row + 2 * heads; }

  constexpr int64_t forward_room() const { return batch * heads * delta_room_numbers(of_head(), false); }
  constexpr int64_t backward_room() const { return batch * heads * delta_room_numbers(of_head(), true); }
};

/// qkv [b*s, columns()]: queries and keys of key heads, and values. gates [b*s, 2 heads], rows with stride
/// `row`: b of all heads, then a. decay and step_bias [heads].
struct DeltaInputs {
  const void *qkv = nullptr, *gates = nullptr, *decay = nullptr, *step_bias = nullptr;
};
/// Gradients of these; the last two accumulate, in full precision.
struct DeltaGradients {
  void *qkv = nullptr, *gates = nullptr, *decay = nullptr, *step_bias = nullptr;
};

/// y = RMS norm of each head of x, times a scale [head_dim] shared by all heads, times SiLU of the gate. x
/// and y are [tokens, heads * head_dim]. The gate has the same width and rows with stride `row`.
struct GatedNormShape {
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t row = 0;
  double epsilon = 1e-6;
  constexpr int64_t columns() const { return heads * head_dim; }
  constexpr int64_t read_gate() const { return tokens == 0 ? 0 : (tokens - 1) * row + columns(); }
};

/// y [rows, columns] = x times the sigmoid of a gate [rows, gates]; each gate is for columns / gates
/// neighbouring columns.
struct GateShape {
  int64_t rows = 0, columns = 0, gates = 0;
  constexpr int64_t width() const { return columns / gates; }
};

/// The memory of head `head_of_all` of batch * heads, within the memory of all heads.
template <class S>
constexpr DeltaRoom<S> delta_room(const DeltaShape& s, S* base, bool backward, int64_t head_of_all) {
  return {s.of_head(), base + head_of_all * delta_room_numbers(s.of_head(), backward), backward};
}

}  // namespace mpt::runtime
