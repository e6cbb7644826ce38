// SPDX-License-Identifier: Apache-2.0

// Bytes of a stage's weights, gradients and optimizer states, from the counts of its elements. A stage's
// footprint is made by add_state(), then by its activations, then by add_start(). StagePieces calls them.

#include "models/footprint.h"

#include <numeric>

#include "models/layer_builder.h"

namespace mpt::models {
namespace {

// Bytes of one parameter. fp32: weight, gradient, two moments. bf16 and fp16: weight, fp32 gradient, fp32
// master weight and two moments (Micikevicius et al. 2018, arXiv:1710.03740; Megatron-LM's convention of 18
// bytes). fp8: the same, and an fp8 copy of the weight and of its transpose for the products. nvfp4: two
// copies of 4 bits, each with 8 bits for every 16 values, one for each order.
struct ParameterBytes {
  int64_t weight, gradient, optimizer;
};
// Bytes of the moments if AdamW's take `adamw`. Adafactor's rows and columns, a per mille, count as 0.
int64_t moment_bytes(const Layout& layout, OptimizerKind kind, int64_t adamw = 8) {
  const int64_t unfactored = layout.zero > 0 && layout.execution->states.flattens_states ? adamw / 2 : 0;
  // adamw, adamw8, adafactor, sgd, muon
  const int64_t bytes[] = {adamw, 2, unfactored, adamw / 2, adamw / 2};
  return bytes[size_t(kind)];
}
// Bytes of both AdamW moments of a weight: in the precision of the framework's states, which may be 16 bits.
int64_t adamw_moment_bytes(const Layout& layout) {
  const StateBytes& states = layout.execution->states;
  return states.optimizer_bytes > 0 ? std::min<int64_t>(states.optimizer_bytes - states.bucket_bytes, 8) : 8;
}
bool keeps_fp4_weights(const Layout& layout) {
  return layout.precision == Precision::nvfp4 && layout.execution->states.fp8_weight_bytes > 0;
}
ParameterBytes bytes_per_parameter(const Layout& layout) {
  const Execution& e = layout.execution;
  auto bytes = layout.precision == Precision::fp32 ? ParameterBytes{4, 4, 8} : ParameterBytes{2, 4, 12};
  if (e.states.weight_bytes > 0) bytes.weight = e.states.weight_bytes;
  const bool in_any_order = layout.precision == Precision::fp8 && e.kernels.fp8_in_any_order;
  if (e.states.fp8_weight_bytes > 0 && is_narrow(layout.precision))
    bytes.weight = e.states.fp8_weight_bytes - (in_any_order ? 1 : 0);
  if (keeps_fp4_weights(layout)) bytes.weight = 2;
  // DeepSpeed with ZeRO 2 sums gradients of more bytes than weights on the device (stage_1_and_2.py of
  // 0.19.8, _use_compact_grad_partition_buffer).
  const bool alike = gradient_element_bytes(layout) == element_bytes(layout.precision);
  const int64_t least = e.states.offloads_weights || alike ? 2 : 3;
  const bool on_host = layout.offload_optimizer && e.states.offloads_gradients && layout.zero >= least;
  bytes.gradient = on_host ? 0 : gradient_element_bytes(layout);
  if (e.states.optimizer_bytes > 0)
    bytes.optimizer = e.states.optimizer_bytes - (layout.ranks() > 1 ? 0 : e.states.bucket_bytes);
  const int64_t moments = adamw_moment_bytes(layout);
  bytes.optimizer += moment_bytes(layout, layout.training->optimizer, moments) - moments;
  return bytes;
}

}  // namespace

// Each moment is a separate buffer, and so is the master weight, or the bits that it has beyond 16. With ZeRO
// 3 the piece at work is gathered in full. If gathering runs ahead, the next piece is, too.
void add_state(const Layout& layout, const StateCounts& counts, StageFootprint& f) {
  const ParameterBytes unit = bytes_per_parameter(layout);
  const auto bytes = [&](int64_t zero, int64_t each) {
    return LayerBuilder::rounded((layout.zero >= zero ? counts.share : counts.whole) * each);
  };
  const int64_t zero = layout.zero_of_micro_batch();
  const int64_t whole = element_bytes(layout.precision);  // as products read it, also of masters in fp32
  const bool on_host = layout.offload_optimizer && layout.execution->states.offloads_weights;
  // FSDP2 without resharding holds its shards, and the full weights that it gathered.
  const bool gathers = layout.zero == 2 && (unit.weight > whole || layout.execution->states.frees_pieces);
  f.parameter_bytes = counts.scale_bytes + (on_host ? 0 : bytes(gathers ? 2 : 3, unit.weight));
  const auto gathered = [&](int64_t bytes) {
    return enlarged(LayerBuilder::rounded(bytes), MemoryUse::gathered, counts.enlarged);
  };
  if (gathers) f.parameter_bytes += gathered(counts.whole * whole);
  if (keeps_fp4_weights(layout)) f.parameter_bytes += bytes(3, 9) / 8;
  const bool shares = layout.zero_of_gradients() >= 2;
  const int64_t summed = (shares ? counts.share : counts.whole) + counts.more_sums;
  f.gradient_bytes = LayerBuilder::rounded(summed * gradient_sum_bytes(layout));
  if (!layout.offload_optimizer) {
    f.optimizer_bytes = unit.optimizer / 4 * bytes(1, 4) + bytes(1, unit.optimizer % 4);
    if (layout.training->optimizer == OptimizerKind::muon)
      f.optimizer_bytes += LayerBuilder::rounded(counts.adam_share * adamw_moment_bytes(layout) / 2);
    // Each moment has a scale of 4 bytes for 256 weights (torchao 0.18.0, optim/subclass_8bit.py). Wide ones
    // have the weight's type there, and fp32 in bitsandbytes (optim/optimizer.py, init_state).
    const int64_t wide = layout.execution->states.wide_table_moments ? 8 : adamw_moment_bytes(layout);
    if (layout.training->optimizer == OptimizerKind::adamw8)
      f.optimizer_bytes += LayerBuilder::rounded(bytes(1, 2) * 4 / 256) +
                           LayerBuilder::rounded(counts.wide_share * (wide - 2));
  }
  if (!on_host && (layout.zero >= 3 || gathers))
    f.parameter_bytes += LayerBuilder::rounded(counts.frozen_share_bytes);
  if (layout.zero < 3 && (!on_host || gathers))
    f.parameter_bytes += LayerBuilder::rounded(counts.frozen_bytes);
  const int64_t largest = layout.overlap_parameter_gather ? counts.largest_pair : counts.largest;
  if (layout.zero >= 3 && !frees_pieces(layout))
    f.parameter_bytes += gathered((zero >= 3 ? largest : counts.whole) * whole) +
                         gathered(zero >= 3 ? counts.largest_frozen_bytes : counts.frozen_bytes);
  if (shares && !frees_pieces(layout))
    f.gradient_bytes += LayerBuilder::rounded(counts.largest * gradient_element_bytes(layout));
}

// Loaders put weights of 4 and 8 bits on each device as a whole, before the framework shards them.
void add_start(const Layout& layout, const StateCounts& counts, StageFootprint& f) {
  const int64_t held = layout.execution->states.whole_at_start;
  if (held == 0 || layout.zero < 3 || layout.training->frozen_format == FrozenFormat::bf16) return;
  const int64_t whole = counts.whole * bytes_per_parameter(layout).weight + counts.frozen_bytes;
  const int64_t start = whole + (held > 1 ? f.parameter_bytes : counts.scale_bytes);
  const int64_t step =
      f.static_bytes() + f.saved_bytes + std::max(f.forward_workspace_bytes, f.backward_workspace_bytes);
  f.parameter_bytes += enlarged(std::max<int64_t>(0, start - step), MemoryUse::gathered, counts.enlarged);
}

int64_t gradient_sum_bytes(const Layout& layout) {
  const bool whole =
      layout.zero >= 2 && layout.zero_of_gradients() < 2 && layout.precision != Precision::fp32;
  const int64_t reduced = layout.execution->states.reduced_bytes;
  return !whole ? bytes_per_parameter(layout).gradient : reduced > 0 ? reduced : 4;
}

int64_t dense_shard(const Layout& layout) { return layout.zero == 0 ? 1 : layout.shard; }

int64_t expert_shard(const Layout& layout) {
  if (layout.zero == 0) return 1;
  if (layout.expert == 1 || layout.shard == layout.replicas()) return layout.expert_replicas();
  return std::gcd(layout.shard, layout.expert_replicas());
}

int64_t updated_like_adamw(const Layout& layout, int64_t parameters) {
  const OptimizerKind kind = layout.training->optimizer;
  if (kind == OptimizerKind::adamw) return parameters;
  // Gradient (4) and weight (2); the master weight is read and written (8), and so are the moments.
  constexpr double kRest = 4.0 + 2.0 + 8.0;
  const auto moved = [&](OptimizerKind k) { return kRest + 2.0 * double(moment_bytes(layout, k)); };
  return int64_t(double(parameters) * moved(kind) / moved(OptimizerKind::adamw));
}

int64_t least_state_bytes(const Layout& layout, const ParameterShare& share) {
  const ParameterBytes unit = bytes_per_parameter(layout);
  const auto bytes = [&](int64_t count, int64_t frozen, int64_t shard) {
    const auto part = [&](int64_t n, int64_t z) { return (layout.zero >= z ? count / shard : count) * n; };
    const int64_t sum = gradient_sum_bytes(layout);
    const int64_t gradient = layout.zero_of_gradients() >= 2 ? part(sum, 2) : count * sum;
    return part(unit.weight, 3) + gradient + (layout.offload_optimizer ? 0 : part(unit.optimizer, 1)) +
           (layout.zero >= 3 ? frozen / shard : frozen);
  };
  if (layout.offload_optimizer && layout.execution->states.offloads_weights) return 0;
  return share.scale_bytes + bytes(share.dense, share.frozen_bytes, dense_shard(layout)) +
         bytes(share.expert, share.frozen_expert_bytes, expert_shard(layout));
}

std::vector<int64_t> host_state_bytes(const ModelSpec& model, const Layout& layout,
                                      const Workload& workload) {
  std::vector<int64_t> bytes(size_t(layout.stages()), 0);
  if (!layout.offload_optimizer) return bytes;
  Layout kept = layout;
  kept.offload_optimizer = false;
  const StateBytes& states = layout.execution->states;
  const int64_t unit = std::max<int64_t>(1, bytes_per_parameter(kept).optimizer);  // 0: Adafactor in fp32
  const bool masters = !states.offloads_weights && layout.precision == Precision::fp32;
  const int64_t on_host = unit + (masters ? 4 : 0) + states.host_gradient_bytes +
                          (layout.zero < 3 ? states.host_weight_bytes : 0);
  const auto all = stage_footprints(model, kept, workload), left = stage_footprints(model, layout, workload);
  for (size_t s = 0; s < all.size(); ++s) {
    bytes[s] = all[s].optimizer_bytes / unit * on_host + all[s].parameter_bytes - left[s].parameter_bytes;
    bytes[s] += all[s].gradient_bytes - left[s].gradient_bytes;
  }
  return bytes;
}

CheckpointBytes checkpoint_bytes(const ModelSpec& model, const Layout& layout, bool in_memory, bool masters) {
  Layout one;  // a single rank holds all
  one.precision = layout.precision;
  one.training = layout.training;
  one.execution = layout.execution;
  one.layers_per_stage = {model.layers.count()};
  const StagePieces pieces(model, one, 1);
  const StageContent all = stage_contents(model, one).front();
  const ParameterShare share = pieces.parameters(all);
  const int64_t own = one.execution->states.weight_bytes, kept = own > 0 ? own : element_bytes(one.precision);
  const int64_t each = (in_memory ? kept : 0) + (masters ? 4 : 0);
  const int64_t besides =
      bytes_per_parameter(one).optimizer -
      moment_bytes(one, one.training->optimizer, adamw_moment_bytes(one));  // masters, buckets
  return {share.total() * each + share.frozen_bytes + share.frozen_expert_bytes + share.scale_bytes,
          pieces.footprint(one, all, 0).optimizer_bytes - share.total() * besides};
}

}  // namespace mpt::models
