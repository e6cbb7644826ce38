// SPDX-License-Identifier: Apache-2.0
#pragma once

// OperatorShape: one operator with its sizes on one rank. Cost, profile, kernels and tests use it as key: the
// cost model prices it, the profiler measures it, the runtime executes it. It holds no time.

#include <cstdint>

#include "base/fields.h"
#include "core/layout.h"
#include "core/runtime_attention.h"

namespace mpt::models {

enum class OperatorKind : uint8_t {
  embedding,     // rows of a table by token: rows = tokens, columns = hidden, inner = vocabulary on this rank
  norm,          // rows = tokens, columns = normalised width
  linear,        // [rows, inner] x [inner, columns]
  rotary,        // rows = tokens, columns = rotated width (queries and keys)
  attention,     // causal attention core: batch, sequence, heads, kv_heads, head_dim, value_head_dim
  activation,    // rows = tokens, columns = output width; gated reads twice the width
  residual_add,  // rows = tokens, columns = hidden
  router,        // softmax and top-k: rows = tokens, columns = experts
  expert_linear,  // grouped product: rows = token copies in all, batch = experts on this rank
  cross_entropy,  // rows = tokens, columns = vocabulary on this rank
  // Choice of keys: rows = tokens, inner = weights of its products, columns = keys chosen; scores of all
  // earlier keys as attention's: batch, sequence, heads, head_dim. Forward alone.
  index,
  convolution,  // of every channel: rows = tokens, columns = channels, inner = length
  // Core of a mixer of linear cost: rows = tokens, columns = width of its result, copy_width = width of its
  // input, inner = FLOP of a token forward, batch = FLOP of a token backward
  recurrence,
  widen,  // widens stored weights for a product: rows, columns = the weights', inner = bits of one
};

struct OperatorShape {
  OperatorKind kind = OperatorKind::linear;
  Precision precision = Precision::fp32;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t inner = 0;
  int64_t batch = 0;
  int64_t sequence = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t value_head_dim = 0;
  int64_t copy_width = 0;  // width of a token's copy in a grouped product's input or output
  int64_t context = 1;  // ranks that share an attention core's sequence in a ring: this one does 1 / context
  bool gated = false;
  bool frozen = false;  // its weights get no gradient
  // An addition to its kind: a weighted bias on a grouped product, a limit on an activation's input, a factor
  // on rotary positions (YaRN, arXiv:2309.00071, section 3.4), or an RMS norm of several kernels.
  bool extra = false;
  // An attention core has another factor on scores than 1 / sqrt(head_dim), or a soft cap.
  bool scaled = false, capped = false;

  auto operator<=>(const OperatorShape&) const = default;

  static void describe(auto& v);
};

/// Whether the operator multiplies by weights.
bool is_product(const OperatorShape& shape);

/// Whether a model's addition to an operator has separate kernels. A single kernel for a whole expert
/// includes the addition.
bool has_extra_kernels(const OperatorShape& shape, const Execution& execution);

/// The requirements of an attention core on the runtime's kernels.
AttentionNeeds attention_needs(const OperatorShape& shape);

/// Floating-point operations of one execution: multiply and add count as two. Causal attention counts the
/// lower triangle only.
double forward_flop(const OperatorShape& shape);
double input_gradient_flop(const OperatorShape& shape);
double weight_gradient_flop(const OperatorShape& shape);

/// Least bytes read and written, if every operand passes through memory once.
double forward_bytes_moved(const OperatorShape& shape);
double backward_bytes_moved(const OperatorShape& shape);

void OperatorShape::describe(auto& v) {
  using T = OperatorShape;
  const FieldRule size = optional_field(between(0, 1e15));
  v.field("kind", &T::kind, "kind of operator");
  v.field("precision", &T::precision, "precision of its data");
  v.field("rows", &T::rows, "rows, usually tokens", size);
  v.field("columns", &T::columns, "columns of the result", size);
  v.field("inner", &T::inner, "length of the sums", size);
  v.field("batch", &T::batch, "sequences, or experts", size);
  v.field("sequence", &T::sequence, "tokens per sequence", size);
  v.field("heads", &T::heads, "query heads on this rank", size);
  v.field("kv_heads", &T::kv_heads, "key-value heads on this rank", size);
  v.field("head_dim", &T::head_dim, "size of a query and key head", size);
  v.field("value_head_dim", &T::value_head_dim, "size of a value head", size);
  v.field("copy_width", &T::copy_width, "width of a token's copy on its way to an expert or back", size);
  v.field("context", &T::context, "ranks that share an attention core's sequence",
          optional_field(between(1, 1e7)));
  v.field("gated", &T::gated, "gated activation", optional_field());
  v.field("frozen", &T::frozen, "its weights get no gradient", rare_field());
  v.field("extra", &T::extra, "a weighted bias, a limit of an activation, a factor on rotary positions",
          optional_field());
  v.field("scaled", &T::scaled, "an attention core's scores have another factor than 1 / sqrt(head_dim)",
          rare_field());
  v.field("capped", &T::capped, "an attention core's scores have a soft cap", rare_field());
}
}  // namespace mpt::models
