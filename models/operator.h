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
#include "generated/OperatorShape.inc"

  auto operator<=>(const OperatorShape&) const = default;
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

}  // namespace mpt::models
