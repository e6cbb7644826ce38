// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/attention_cost.h"

namespace mpt::planner {
namespace {

using models::OperatorShape;
using profiler::KernelTables;
using profiler::Phase;

constexpr double kShortestMeasured = 512.0;  // tokens, in the tables of attention

const char* pass_name(bool forward) { return forward ? "forward" : "backward"; }
bool is_windowed(const OperatorShape& s) { return s.inner > 0 && s.inner < s.sequence; }
double batch(const OperatorShape& s) { return double(std::max<int64_t>(1, s.batch)); }

// Tokens of the causal sequences with the same price. A window is priced like causal sequences of twice its
// length, with the same mean number of keys (cuDNN 9.19 on H200, window of 1,024 at head size 64: 336
// TFLOP/s; 289 in the table's row of 2,048), and no worse than the shortest measured length.
double causal_tokens(const OperatorShape& s) {
  const double whole = double(s.sequence) / double(s.context);
  return s.inner > 0 ? std::min(whole, std::max(2.0 * double(s.inner), kShortestMeasured)) : whole;
}

}  // namespace

std::optional<RuntimeAttention> runtime_kernel(const OperatorShape& s, const Execution& execution,
                                               const DeviceSpec& device) {
  if (execution.kernels.attention != AttentionKernel::own || s.kind != models::OperatorKind::attention)
    return std::nullopt;
  return runtime_attention(models::attention_needs(s), prefers_cudnn(device.compute_capability));
}

std::optional<double> own_kernel_s(const OperatorShape& s, bool forward, const Execution& execution,
                                   const DeviceSpec& device, double products_flop_per_s,
                                   const Calibration& c) {
  const auto kernel = runtime_kernel(s, execution, device);
  if (!kernel || *kernel == RuntimeAttention::cudnn) return std::nullopt;
  const bool scalar = *kernel == RuntimeAttention::scalar;
  const double rate = scalar ? c.scalar_attention_flop_per_s : c.own_attention_share * products_flop_per_s;
  const double backward = scalar ? c.scalar_attention_backward_flop : c.attention_backward_flop;
  return c.kernel_gap_s + models::forward_flop(s) * (forward ? 1.0 : backward) / rate;
}

double AttentionCost::seconds(const OperatorShape& shape, Phase phase) const {
  if (phase == Phase::weight_gradient) return 0.0;
  const bool forward = phase == Phase::forward;
  if (writes_scores(execution_.kernels.attention)) return scores_s(shape, forward);
  const auto own_s = own_kernel_s(shape, forward, execution_, device_, rates_.products_flop_per_s, c_);
  if (own_s) return *own_s;
  OperatorShape s = shape;
  // In fp8 the backward does not skip keys outside the window (training_attention.csv: windows of 128 and
  // 1,024 take equally long).
  if (runs_narrow(s) && !forward) s.inner = 0;
  return flash_s(s, forward) + casts_s(s, forward);
}

// Whether the device is an Ampere or older: it has no fp8 products.
bool AttentionCost::is_ampere() const { return !tables_.gemm.contains("fp8"); }

// TransformerEngine uses cuDNN's kernels on Hopper and later, and FlashAttention on earlier GPUs (its
// pytorch/attention/dot_product_attention/utils.py, "FusedAttention preference"; since 1.3).
AttentionKernel AttentionCost::kernel() const {
  const AttentionKernel asked = execution_.kernels.attention;
  if (asked == AttentionKernel::own) return AttentionKernel::flash;
  // torch 2.15.0, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, check_prefer_cudnn_attention: cuDNN
  // above 9.15 comes first there (the wheel brings 9.26); TORCH_CUDNN_SDPA_DEPRIORITIZED puts it back.
  const bool prefers_cudnn = device_.compute_capability == 90 || device_.compute_capability == 100;
  if (asked == AttentionKernel::sdpa) return prefers_cudnn ? AttentionKernel::cudnn : AttentionKernel::flash2;
  return asked == AttentionKernel::cudnn && is_ampere() ? AttentionKernel::flash2 : asked;
}

bool AttentionCost::runs_narrow(const OperatorShape& s) const {
  return execution_.kernels.fp8_attention && is_narrow(s.precision) && device_.fp8_flop_per_s > 0.0;
}

// Queries, keys and values are narrowed before the forward, and the result's gradient before the backward.
double AttentionCost::casts_s(const OperatorShape& s, bool forward) const {
  if (!runs_narrow(s)) return 0.0;
  const double width = forward ? double(s.heads * s.head_dim + s.kv_heads * (s.head_dim + s.value_head_dim))
                               : double(s.heads * s.value_head_dim);
  return batch(s) * double(s.sequence) / double(s.context) * width * rates_.cast_bytes(s.precision) /
         rates_.bandwidth_bytes_per_s;
}

// The time if exactly this core was measured, by the user or on the node of the tables.
std::optional<double> AttentionCost::as_measured_s(const OperatorShape& s, bool forward, double flop) const {
  if (is_windowed(s)) return std::nullopt;
  const bool plain_shape = s.context == 1 && s.value_head_dim == s.head_dim;
  const bool any_kernel = kernel() == AttentionKernel::flash || kernel() == AttentionKernel::cudnn;
  if (own_ != nullptr && plain_shape && any_kernel && !runs_narrow(s)) {
    const auto own_s = KernelTables::exact(own_->attention_seconds, pass_name(forward),
                                           {s.sequence, s.heads, s.kv_heads, s.head_dim});
    if (own_s) return *own_s * batch(s) / rates_.kernels;
  }
  const auto exact = KernelTables::exact(tables_.attention_cores, pass_name(forward),
                                         {s.sequence, s.heads, s.kv_heads, s.head_dim, s.value_head_dim});
  if (exact) return flop / (*exact * rates_.kernels);
  return std::nullopt;
}

// Share of the tables' forward rate for the same heads.
double AttentionCost::share_of_forward(const OperatorShape& s, bool forward, double sequence) const {
  if (kernel() == AttentionKernel::cudnn) {
    const auto share = [&](const std::string& precision) {
      return tables_.training_attention_share(pass_name(forward), precision, double(s.head_dim), sequence);
    };
    const auto narrow = runs_narrow(s) ? share(enum_name(s.precision)) : std::nullopt;
    if (narrow) return *narrow;
    if (const auto wide = share("bf16")) return *wide;
  }
  return forward ? 1.0 : c_.attention_backward_rate;
}

// Limit for FlashAttention-1 and 2, which were written for Ampere. Ampere has no fp8, and the table of the
// second was measured there.
double AttentionCost::most_flop_per_s(bool forward, double sequence) const {
  const bool ampere = is_ampere(), first = execution_.kernels.attention == AttentionKernel::flash1;
  const double share =
      first ? (ampere ? c_.flash1_ampere_share : c_.flash1_share) : (ampere ? 1.0 : c_.flash2_share);
  return rates_.products_flop_per_s * share * sequence / (sequence + c_.flash2_half_tokens) *
         (forward ? 1.0 : c_.flash2_backward_rate);
}

double AttentionCost::flash_s(const OperatorShape& s, bool forward) const {
  const double flop = models::forward_flop(s) * (forward ? 1.0 : c_.attention_backward_flop);
  if (const auto measured_s = as_measured_s(s, forward, flop)) return c_.kernel_gap_s + *measured_s;
  const double sequence = causal_tokens(s);
  const double heads = double(s.heads) * batch(s) * double(s.sequence) / double(s.context) / sequence;
  const auto measured = tables_.attention_flop_per_s(double(s.head_dim), sequence, heads);
  double flop_per_s =
      (measured ? *measured * rates_.kernels : c_.unmeasured_attention_share * rates_.products_flop_per_s) *
      share_of_forward(s, forward, sequence);
  if (kernel() == AttentionKernel::flash1 || kernel() == AttentionKernel::flash2)
    flop_per_s = std::min(flop_per_s, most_flop_per_s(forward, sequence));
  return c_.kernel_gap_s + flop / flop_per_s;
}

// Two batched products over the whole square, and softmax and dropout over the scores between them. The first
// product writes the scores; softmax and dropout read and write them; the second product reads them. The
// backward does the same again, and with gradients.
double AttentionCost::scores_s(const OperatorShape& s, bool forward) const {
  const double square = double(s.batch) * double(s.heads) * double(s.sequence) * double(s.sequence);
  const double flop = 2.0 * square * double(s.head_dim + s.value_head_dim) * (forward ? 1.0 : 2.0);
  // The fused softmax handles four rows of heads at once. Other numbers go through fp32 copies of the scores
  // (Megatron-LM, fused_kernels: get_batch_per_block).
  const bool fused = s.batch * s.heads % 4 == 0;
  const double dropout = execution_.kernels.dropout ? c_.unfused_dropout_passes : 0.0;
  double passes = (c_.unfused_score_passes + dropout + (fused ? 0.0 : c_.unfused_copy_passes)) *
                  (forward ? 1.0 : c_.unfused_backward_passes);
  if (execution_.kernels.attention == AttentionKernel::plain)
    passes = (forward ? c_.plain_score_passes : c_.plain_score_backward_passes) + dropout +
             (forward ? 0.5 * c_.plain_mask_bytes / double(s.heads) : 0.0);
  const bool aligned = s.head_dim % 8 == 0;
  const double products_s = flop / (rates_.products_flop_per_s * c_.unfused_product_share *
                                    (aligned ? 1.0 : c_.unaligned_batched_rate));
  return 5.0 * c_.kernel_gap_s + products_s + square * 2.0 * passes / rates_.bandwidth_bytes_per_s;
}

}  // namespace mpt::planner
