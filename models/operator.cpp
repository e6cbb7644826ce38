// SPDX-License-Identifier: Apache-2.0
#include "models/operator.h"

namespace mpt::models {
namespace {

double unit_bytes(Precision precision) { return double(element_bytes(precision)); }

// Query-key pairs that causal attention computes: each of `sequence` queries sees its own and the earlier
// keys, at most `window` of them (inner holds the window; 0 is none). Ranks of a ring share the pairs evenly.
double causal_pairs(const OperatorShape& s) {
  const double n = double(s.sequence);
  const double w = s.kind == OperatorKind::attention && s.inner > 0 ? std::min(double(s.inner), n) : n;
  return double(s.batch) * (w * (w + 1) / 2 + (n - w) * w) / double(s.context);
}

double elements_in(const OperatorShape& s) {
  using K = OperatorKind;
  if (s.kind == K::activation) return double(s.rows) * double(s.columns) * (s.gated ? 2 : 1);
  if (s.kind == K::residual_add) return 2.0 * double(s.rows) * double(s.columns);
  if (s.kind == K::attention)
    return double(s.batch * s.sequence) / double(s.context) *
           double(s.heads * s.head_dim + s.kv_heads * (s.head_dim + s.value_head_dim));
  if (s.kind == K::linear) return double(s.rows) * double(s.inner) + double(s.columns) * double(s.inner);
  if (s.kind == K::expert_linear)
    return double(s.rows) * double(s.inner) + double(s.batch) * double(s.columns) * double(s.inner);
  if (s.kind == K::index) return double(s.rows) * double(s.head_dim) * double(s.heads + 1) + double(s.inner);
  return double(s.rows) * double(s.kind == K::recurrence ? s.copy_width : s.columns);
}

double elements_out(const OperatorShape& s) {
  return s.kind == OperatorKind::attention
             ? double(s.batch * s.sequence) / double(s.context) * double(s.heads * s.value_head_dim)
             : double(s.rows) * double(s.columns);
}

}  // namespace

bool is_product(const OperatorShape& s) {
  return s.kind == OperatorKind::linear || s.kind == OperatorKind::expert_linear;
}

bool has_extra_kernels(const OperatorShape& s, const Execution& e) {
  return s.extra && e.kernels.extras_apart && (s.kind == OperatorKind::rotary || !e.kernels.fuses_experts);
}

AttentionNeeds attention_needs(const OperatorShape& s) {
  const bool windowed = s.inner > 0 && s.inner < s.sequence;
  const bool ring = s.context > 1;
  return {s.head_dim, s.value_head_dim, s.precision != Precision::fp32, windowed, s.scaled, s.capped, ring};
}

double forward_flop(const OperatorShape& s) {
  if (is_product(s)) return 2.0 * double(s.rows) * double(s.columns) * double(s.inner);
  if (s.kind == OperatorKind::attention)
    return 2.0 * causal_pairs(s) * double(s.heads) * double(s.head_dim + s.value_head_dim);
  if (s.kind == OperatorKind::index)
    return 2.0 * (double(s.rows) * double(s.inner) + causal_pairs(s) * double(s.heads) * double(s.head_dim));
  // The rest is bandwidth-bound: priced by bytes, and by convention not counted as model FLOP.
  return s.kind == OperatorKind::recurrence ? double(s.rows) * double(s.inner) : 0.0;
}

double input_gradient_flop(const OperatorShape& s) {
  // Attention: four products of gradients, dP, dV, dQ and dK (arXiv:2205.14135, appendix B), and no weight
  // gradients.
  return s.kind == OperatorKind::attention    ? 2.0 * forward_flop(s)
         : s.kind == OperatorKind::index      ? 0.0
         : s.kind == OperatorKind::recurrence ? double(s.rows) * double(s.batch)
                                              : forward_flop(s);
}

double weight_gradient_flop(const OperatorShape& s) {
  return is_product(s) && !s.frozen ? forward_flop(s) : 0.0;
}

double forward_bytes_moved(const OperatorShape& s) {
  if (s.kind == OperatorKind::widen)
    return double(s.rows) * double(s.columns) * (double(s.inner) / 8.0 + unit_bytes(s.precision));
  return (elements_in(s) + elements_out(s)) * unit_bytes(s.precision);
}

double backward_bytes_moved(const OperatorShape& s) {
  if (s.kind == OperatorKind::index || (s.kind == OperatorKind::embedding && s.frozen)) return 0.0;
  if (s.kind == OperatorKind::widen) return forward_bytes_moved(s);
  // Reads the output's gradient and the saved input, writes the input's gradient; products also write dW in
  // fp32.
  const double products =
      is_product(s) && !s.frozen
          ? double(std::max<int64_t>(1, s.kind == OperatorKind::expert_linear ? s.batch : 1)) *
                double(s.columns) * double(s.inner) * 8.0
          : 0.0;
  return (2.0 * elements_in(s) + elements_out(s)) * unit_bytes(s.precision) + products;
}

}  // namespace mpt::models
