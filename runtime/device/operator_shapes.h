// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sizes of the operators of runtime/device/operations.h. The legend there also holds here.

#include <cmath>
#include <cstdint>
#include <span>

#include "core/delta_room.h"
#include "core/model_spec.h"
#include "core/runtime_attention.h"

namespace mpt::runtime {

/// Kept results for products of 8 bits in device memory, which save reads when operands are narrowed. Devices
/// that narrow in software ignore them. A magnitude is the largest one of a tensor, in float, over all its
/// rows.
struct Fp8Kept {
  const void* weight = nullptr;  // of narrow_weight(); null: the weight is narrowed for each product
  // linear_forward() writes it for linear_backward_weight(), or reads it if it is `known`. Null: neither.
  void* x_magnitude = nullptr;
  bool x_is_known = false;
  const void* dy_magnitude = nullptr;  // null: it is not known
  bool operator==(const Fp8Kept&) const = default;
};

/// y = x w^T (+ bias): x [rows, inner], w [columns, inner], y [rows, columns].
struct LinearShape {
  int64_t rows = 0, columns = 0, inner = 0;
  bool fp8 = false;  // operands of 16 bits are first narrowed to 8 (runtime/device/fp8.h)
  Fp8Kept kept{};

  /// Products of 8 bits need sides that are multiples of 16 bytes. Other products keep their operands' type.
  constexpr bool narrows() const { return fp8 && rows % 16 == 0 && columns % 16 == 0 && inner % 16 == 0; }
};

/// qkv is [b*s, (a + k) * d + k * e]: queries of all heads, then keys, then values of size e.
struct AttentionShape {
  int64_t batch = 0, sequence = 0, heads = 0, kv_heads = 0, head_dim = 0;
  int64_t value_dim = 0;  // 0: the size of keys
  int64_t window = 0;     // keys that a query sees, including its own; 0: all up to its own
  double scale = 0.0;     // factor on scores; 0: 1 / sqrt(d)
  double cap = 0.0;       // scores are cap * tanh(score / cap); 0: no cap
  constexpr int64_t values() const { return value_dim > 0 ? value_dim : head_dim; }
  constexpr int64_t row() const { return rotated() + kv_heads * values(); }
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t rotated() const { return (heads + kv_heads) * head_dim; }  // columns of queries and keys
  constexpr int64_t outputs() const { return heads * values(); }
  constexpr int64_t kv_row() const { return kv_heads * (head_dim + values()); }
  double score_scale() const { return scale > 0.0 ? scale : 1.0 / std::sqrt(double(head_dim)); }
  constexpr AttentionNeeds needs(bool half, bool ring = false) const {
    return {head_dim, values(), half, window > 0, scale > 0.0, cap > 0.0, ring};
  }
};

/// Sizes of latent attention on one rank (arXiv:2405.04434, section 2.1). Queries and keys of a head have a
/// part without rotary positions, then one with them. All heads share the rotary part of the keys.
struct LatentShape {
  int64_t batch = 0, sequence = 0, heads = 0;
  int64_t nope = 0, rope = 0, values = 0;
  constexpr int64_t tokens() const { return batch * sequence; }
  constexpr int64_t key_dim() const { return nope + rope; }
  constexpr int64_t row() const { return heads * (2 * key_dim() + values); }
};

/// Rotary positions: the pairs (i, i + half) of a head are rotated by position x frequency, with half = the
/// number of frequencies, as in Llama's Hugging Face weights. Both lists are in host memory.
struct Rotation {
  std::span<const double> frequencies;
  std::span<const int32_t> positions;  // [s]
  double factor = 1.0;                 // on rotated elements (YaRN, arXiv:2309.00071, section 3.4)
};

/// Queries of one rank and a block of keys from another. Query i sees the first visible[i] keys, without the
/// hidden[i] first ones that precede its window. Positions rise in both, so the visible keys are always a
/// prefix of the block.
struct AttentionBlock {
  AttentionShape shape;
  int64_t keys = 0;
  std::span<const int32_t> visible;  // [s], in host memory
  std::span<const int32_t> hidden;   // the same; empty: none is hidden
};

struct NormShape {
  NormKind kind = NormKind::layer_norm;
  int64_t rows = 0, columns = 0;
  double epsilon = 1e-5;
  /// Saved per row: mean and reciprocal deviation for layer norm, the latter alone for rms norm.
  constexpr int64_t statistics() const { return rows * (kind == NormKind::layer_norm ? 2 : 1); }
};

struct ActivationShape {
  ActivationKind kind = ActivationKind::gelu_tanh;
  int64_t rows = 0, columns = 0;  // columns of the output
  bool gated = false;             // input is [rows, 2 * columns]: gate, then up
  // gpt-oss: the gate is clamped from above at the limit, the other half from both sides. The result is gate
  // * sigmoid(1.702 gate) * (up + 1). 0: no limit, and another activation.
  double limit = 0.0;
  // Without a limit, in 16 bits and on GPUs: this float in device memory, at least zero, is raised to the
  // largest magnitude of the output. Null: it is not wanted.
  void* magnitude = nullptr;
  constexpr int64_t input_columns() const { return columns * (gated ? 2 : 1); }
};

/// Rows first .. first + rows of a table that is indexed by token.
struct TableShape {
  int64_t tokens = 0, hidden = 0, first = 0, rows = 0;
};

/// Logits [tokens, columns]. The first `used` columns are real words: the words first .. first + used of the
/// vocabulary.
struct LossShape {
  int64_t tokens = 0, columns = 0, used = 0, first = 0;
};

/// For each token `top` of `experts` are chosen, all from `groups_of_token` of `groups` groups of
/// neighbouring experts. The chosen groups have the highest sums of their best probabilities. With sigmoid
/// scores a sum is over two experts (arXiv:2412.19437, section 2.1.2), with softmax it is the best one
/// (arXiv:2405.04434, section 2.2.2).
struct RouterShape {
  int64_t tokens = 0, experts = 0, top = 0;
  int64_t groups = 1, groups_of_token = 1;
  RouterScores scores = RouterScores::softmax;
  bool normalized = true;           // weights of a token sum up to `scale`
  double scale = 1.0;               // factor on weights
  int64_t sequence = 1, first = 0;  // token t is in sequence (first + t) / sequence
  constexpr int64_t group_size() const { return experts / groups; }
  constexpr int64_t best_of_group() const {
    return scores == RouterScores::sigmoid && group_size() > 1 ? 2 : 1;
  }
  constexpr bool limited() const { return groups_of_token < groups; }
};

// Shapes and operands of the operators of linear mixers, and of gates. Rows with a stride of `row` elements
// are parts of wider rows, the output of one product.

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
