// SPDX-License-Identifier: Apache-2.0

// Changes of a layer's operators by adapters, frozen weights and activations in host memory.

#include <cmath>

#include "models/layer_builder.h"

namespace mpt::models {

int64_t products_of(const LinearSizes& sizes, const Execution& execution) {
  const bool one = sizes.module == Module::mlp_up && execution.kernels.one_product_of_mlp_halves;
  if (one || execution.kernels.one_adapter_per_product) return 1;
  return std::max<int64_t>(1, 3 - std::count(sizes.parts.begin(), sizes.parts.end(), 0));
}

// A separate kernel reads the stored weight and writes the product's operand, in both passes.
void LayerBuilder::add_widening(const LinearSizes& sizes, int64_t matrices) {
  const Training& t = layout_.training;
  const ModuleRules& rules = rules_of(sizes.module);
  if (t.frozen_format == FrozenFormat::bf16 || !rules.quantised || !t.freezes(*rules.part)) return;
  OperatorShape s = shape(OperatorKind::widen, sizes.columns);
  s.rows = sizes.inner * matrices;
  s.inner = t.frozen_format == FrozenFormat::nf4 ? 4 : 8;
  s.frozen = true;
  add({"frozen.widen", Module::widen, s});
  last().parts = products_of(sizes, execution()) == 1 ? std::array<int64_t, 3>{sizes.columns} : sizes.parts;
}

// A narrow product to the adapter's rank and a wide one from it, both split over tensor ranks
// (NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/peft/utils.py, ParallelLinearAdapter). Column-parallel
// ones gather the rank's columns between them, row-parallel ones sum them.
void LayerBuilder::add_adapter(const LinearSizes& sizes) {
  const auto target = rules_of(sizes.module).adapter;
  if (!target || !layout_.training->adapts(*target)) return;
  const bool was_local = input_is_local_;
  const int64_t rank = layout_.training->adapter_rank, all_ranks = rank * products_of(sizes, execution());
  const bool rows = sizes.parallel == Parallel::rows;
  const auto narrow = rows ? all_ranks : share(all_ranks), wide = rows ? share(sizes.columns) : sizes.columns;
  const auto add_product = [&](std::string_view name, int64_t columns, int64_t inner) -> Operator& {
    OperatorShape s = shape(OperatorKind::linear, columns);
    s.inner = inner;
    if (is_narrow(s.precision)) s.precision = Precision::bf16;
    add({name, Module::adapter, s});
    last().parameters = columns * inner;
    last().weight_operand_bytes = rounded(s.rows * (inner + columns) * unit_);
    last().backward_workspace_bytes = last().gradient_kept_bytes = rounded(s.rows * inner * unit_);
    return last();
  };
  Operator& down = add_product("adapter.down", narrow, sizes.inner);
  if (layout_.tensor > 1) {
    const Collective sum = rows ? tensor_all_reduce(all_ranks) : gather_over_tensor(all_ranks);
    down.forward_collectives = {sum};
    down.backward_collectives = {sum};
  }
  add_product("adapter.up", wide, rank);
  keep_both(bytes(all_ranks) + rounded(narrow * sizes.inner * narrowed_));
  if (execution().kept.adapter_dropout)
    keep_both(rounded(tokens_ * sizes.inner * products_of(sizes, execution())));
  // What the attention core keeps is its own output. A product keeps a copy of it, once.
  keep_narrow_inputs(sizes, *target == AdapterTarget::output && !execution().kept.copies_core_output ? 0 : 1);
  input_is_local_ = was_local;
}

// Every expert has separate adapters.
void LayerBuilder::add_expert_adapter(const LinearSizes& sizes) {
  if (!layout_.training->adapts(AdapterTarget::experts)) return;
  const bool was_local = input_is_local_;
  const Training& t = layout_.training;
  const int64_t rank = t.adapter_rank * (sizes.module == Module::experts_up ? t.expert_rank_factor : 1);
  for (const auto& [name, columns, inner] : {std::tuple{"adapter.experts_down", rank, sizes.inner},
                                             std::tuple{"adapter.experts_up", sizes.columns, rank}}) {
    OperatorShape s = shape(OperatorKind::expert_linear, columns);
    s.inner = inner;
    s.rows = expert_rows();
    s.batch = kind_->moe->experts / layout_.expert;
    if (is_narrow(s.precision)) s.precision = Precision::bf16;
    add({name, Module::adapter, s});
    last().parameters = columns * inner * s.batch;
    last().expert_parameters = true;
    last().weight_operand_bytes = rounded(s.rows * (inner + columns) * unit_);
  }
  if (execution().kept.merges_expert_adapters) {
    // The grouped product keeps the sum of weights and adapters, and its gradient has the same size.
    const int64_t merged = rounded(sizes.columns * sizes.inner * last().shape.batch * unit_);
    keep_both(merged);
    last().backward_workspace_bytes += merged;
  } else {
    keep_both(rounded(expert_rows() * rank * unit_));
  }
  input_is_local_ = was_local;
}

// Frozen weights have no gradient, so their products' inputs are not needed again.
void LayerBuilder::freeze() {
  const Training& t = layout_.training;
  if (!t.adapts() && t.frozen.empty()) return;
  for (Operator& op : program_.operators) {
    const ModuleRules& rules = rules_of(op.module);
    const bool frozen = rules.part && t.freezes(*rules.part);
    // PEFT trains a copy, and keeps the loaded weight (peft/utils/other.py, ModulesToSaveWrapper).
    if (!frozen && rules.part && t.adapts()) op.frozen_bytes = op.parameters * unit_;
    if (!frozen) continue;
    op.shape.frozen = true;
    const bool stored = t.frozen_format != FrozenFormat::bf16 && rules.quantised && is_product(op.shape) &&
                        (execution().states.narrows_experts || !op.expert_parameters);
    const bool nf4 = stored && t.frozen_format == FrozenFormat::nf4;
    op.frozen_bytes = nf4 ? (op.parameters + 1) / 2 : op.parameters * (stored ? 1 : unit_);
    // A scale in 32 bits for every 64 weights. Nested scales have 8 bits, and 256 of them share one in 32
    // bits (QLoRA, arXiv:2305.14314, section 3). They are attributes of a weight (bitsandbytes 0.50.2,
    // functional.py, QuantState), which FSDP2 and DeepSpeed do not shard.
    const int64_t narrow = op.parameters / 64 + op.parameters / 4096, wide = op.parameters / 16;
    op.scale_bytes = !nf4 ? 0 : execution().states.nested_scales ? narrow : wide;
    op.weight_operand_bytes = op.weight_workspace_bytes = 0;
    // The weight's gradient alone reads what a norm of several kernels multiplies by it last, in fp32 or in
    // 16 bits.
    if (op.shape.kind == OperatorKind::norm && op.shape.extra)
      op.saved_bytes -=
          rounded(op.shape.rows * op.shape.columns * std::min<int64_t>(4, norm_bytes(unit_) + unit_ - 4));
    if (!is_product(op.shape)) continue;
    // The gradients of the router's scores need the outputs of frozen experts, too.
    const bool scored = op.module == Module::experts_down && execution().kept.keeps_expert_outputs &&
                        !t.adapts(AdapterTarget::experts);
    op.saved_bytes = scored ? expert_output_bytes(op.shape.columns) : 0;
    op.gradient_kept_bytes = 0;
    if (!execution().kept.keeps_every_second_product) op.saved_bytes_selective = 0;
    // Sequence parallelism gathers the input again only for the weight gradient.
    Collectives needed;
    for (const Collective& c : op.backward_collectives)
      if (!(c.beside && c.kind == CollectiveKind::all_gather && c.group == CollectiveGroup::tensor))
        needed.push_back(c);
    op.backward_collectives = needed;
  }
}

// Activations that move to host memory are copied while the next layer computes. They return ahead of the
// layer that needs them. So the device holds those of two layers at a time.
void LayerBuilder::move_to_host() {
  if (layout_.training->offloaded.empty()) return;
  for (Operator& op : program_.operators) {
    const auto offload = rules_of(op.module).offload;
    if (!offload || !layout_.training->offloads(*offload)) continue;
    op.offloaded_bytes = op.saved_bytes;
    op.forward_workspace_bytes += 2 * op.saved_bytes;
    op.backward_workspace_bytes += 2 * op.saved_bytes;
    op.saved_bytes = op.saved_bytes_selective = 0;
  }
}

// Number of equal sequences with the same work of attention as the packed ones. Ranks on different sequences
// wait for the one with most attention: the largest of n normal deviates is about sqrt(2 ln n).
double LayerBuilder::packed_sequences_of_work() const {
  const Training& t = layout_.training;
  if (t.packed_length <= 0.0) return 1.0;
  const double beside = std::min(double(layout_.pipeline) * double(layout_.data),
                                 double(std::max<int64_t>(1, t.packed_sequences)));
  const double largest = std::sqrt(2.0 * std::log(std::max(1.0, beside)));
  const double late = 1.0 + t.packed_spread / std::sqrt(double(layout_.micro_batch)) * largest;
  return std::max(1.0, double(sequence_) / (t.packed_length * late));
}

}  // namespace mpt::models
