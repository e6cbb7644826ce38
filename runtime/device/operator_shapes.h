// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sizes of the operators of runtime/device/operations.h. The legend there also holds here.

#include <cmath>
#include <cstdint>
#include <span>

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

}  // namespace mpt::runtime
