// SPDX-License-Identifier: Apache-2.0
#include "models/layer_builder.h"

namespace mpt::models {

LayerBuilder& LayerBuilder::norm(std::string_view name, Module module, int64_t width, bool input_kept) {
  add({name, module, local_shape(OperatorKind::norm, width)});
  const bool layer_norm = model_.norm == NormKind::layer_norm;
  last().parameters = width * (layer_norm && model_.norm_bias ? 2 : 1);
  last().shape.extra = has_norms_of_several_kernels();  // these have copies of the input
  if (!input_kept || last().shape.extra) keep_both(rounded(local_tokens_ * width * residual_unit_));
  keep_both(local_state_bytes(layer_norm ? 2 : 1));  // statistics
  if (last().shape.extra) keep_both(rounded(local_tokens_ * width * norm_bytes(residual_unit_)));
  last().backward_workspace_bytes = last().gradient_kept_bytes = local_bytes(width);
  return *this;
}

// A frozen product that is stored in fewer bits is widened first. An adapter's two products follow it.
LayerBuilder& LayerBuilder::linear(const LinearSizes& sizes) {
  if (!layout_.training->changes_products()) {
    product(sizes);
    keep_narrow_inputs(sizes, 1);
    // A mixer or a dense MLP ends here. It keeps the largest magnitudes of its products' inputs.
    if (sizes.parallel == Parallel::rows && layout_.precision == Precision::fp8 &&
        execution().kernels.narrows_apart)
      keep_both(rounded_bytes(1));
    return *this;
  }
  add_widening(sizes, 1);
  product(sizes);
  add_adapter(sizes);
  return *this;
}

LayerBuilder& LayerBuilder::expert_linear(const LinearSizes& sizes) {
  if (!layout_.training->changes_products()) return expert_product(sizes);
  if (execution().states.narrows_experts) add_widening(sizes, kind_->moe->experts / layout_.expert);
  expert_product(sizes);
  add_expert_adapter(sizes);
  return *this;
}

LayerBuilder& LayerBuilder::product(const LinearSizes& sizes) {
  OperatorShape s = sizes.parallel == Parallel::replicated ? local_shape(OperatorKind::linear, sizes.columns)
                                                           : shape(OperatorKind::linear, sizes.columns);
  s.inner = sizes.inner;
  if (!sizes.fp8 && is_narrow(s.precision)) s.precision = Precision::bf16;
  input_is_local_ = sizes.parallel != Parallel::rows;
  add({sizes.name, sizes.module, s});
  Operator& op = last();
  op.parameters = sizes.columns * sizes.inner + (sizes.bias ? sizes.columns : 0);
  op.parts = sizes.parts;
  // The gradient of a gathered input is scattered.
  const int64_t input_rows = sizes.parallel == Parallel::columns ? local_tokens_ : s.rows;
  op.backward_workspace_bytes = rounded(input_rows * sizes.inner * unit_);
  op.weight_operand_bytes = rounded(s.rows * (sizes.inner + sizes.columns) * unit_);
  // The gradient of a row-parallel layer's input is used at once by an activation or the attention core.
  if (sizes.parallel != Parallel::rows) op.gradient_kept_bytes = op.backward_workspace_bytes;
  // The outputs of row-parallel layers are summed into the residual and freed; the others are saved
  // downstream.
  if (sizes.parallel == Parallel::rows) op.forward_workspace_bytes = local_bytes(sizes.columns);
  if (sizes.parallel == Parallel::rows && layout_.sequence_parallel) {
    // The gathered gradient of its output is used for both the input's and the weight's gradient.
    op.backward_workspace_bytes += bytes(sizes.columns);
    op.gradient_kept_bytes += bytes(sizes.columns);
  }
  if (layout_.tensor > 1) add_tensor_collectives(sizes, op);
  const Kept& kept = execution().kept;
  keep_both(rounded(op.parameters * kept.rounded_weight_bytes + s.rows * s.inner * kept.rounded_input_bytes));
  if (execution().kept.keeps_every_second_product) keep_every_second(sizes);
  return *this;
}

// A copy of the weight, and one of the input for each product, of which `counted` are kept already.
void LayerBuilder::keep_narrow_inputs(const LinearSizes& sizes, int64_t counted) {
  const int64_t inputs = products_of(sizes, execution()) - counted;
  keep_both(rounded(last().parameters * narrowed_) + inputs * rounded(tokens_ * sizes.inner * narrowed_));
}

// The outputs of every second product stay (pytorch/torchtitan at 9dec370, parallelize_llama.py).
void LayerBuilder::keep_every_second(const LinearSizes& sizes) {
  int64_t kept = 0;
  const auto count = [&](int64_t columns) { kept += products_++ % 2 == 0 ? columns : 0; };
  const bool one = sizes.module == Module::qkv && execution().kept.one_product_of_queries_keys_values;
  if (one || sizes.parts.front() == 0) count(sizes.columns);
  for (const int64_t columns : sizes.parts)
    if (!one && columns > 0) count(columns);
  const int64_t rows = sizes.parallel == Parallel::replicated ? local_tokens_ : tokens_;
  last().saved_bytes_selective = rounded(rows * kept * unit_);
  last().selective_share = 1.0 - double(kept) / double(sizes.columns);
}

// Without sequence parallelism: one all-reduce in the forward and one in the backward (arXiv:1909.08053).
// With it each becomes a gather and a scatter. The kept part of the input is gathered again for the weight
// gradient, during the product of the input gradient (arXiv:2205.05198, section 4.2). Frameworks that keep 8
// bits for fp8 products narrow inputs and output gradients before they gather them (Transformer Engine,
// with_quantized_all_gather in module/layernorm_linear.py, grad_output_preprocess in module/base.py).
// Scattered tensors stay in 16 bits.
void LayerBuilder::add_tensor_collectives(const LinearSizes& sizes, Operator& op) const {
  const bool sequence = layout_.sequence_parallel;
  const bool joined = sizes.joined && (sizes.parallel == Parallel::columns || !sequence);
  if (sizes.parallel == Parallel::replicated || joined) return;
  const auto gathered = [&](int64_t columns) {
    Collective c = gather_over_tensor(columns);
    if (execution().kept.keeps_fp8_inputs) c.bytes = product_input_bytes(op, c.bytes / unit_);
    return c;
  };
  if (sizes.parallel == Parallel::columns) {
    if (sequence) op.forward_collectives.push_back(gathered(sizes.inner));
    Collective sum = sum_over_tensor(sizes.inner);
    sum.beside_weight = execution().traffic.sums_beside_weight_gradient;
    if (!sequence && execution().traffic.sums_by_projection) sum.bytes *= products_of(sizes, execution());
    op.backward_collectives.push_back(sum);
    if (!sequence || execution().kept.gathered_inputs) return;
    Collective again = gathered(sizes.inner);
    again.beside = true;
    op.backward_collectives.push_back(again);
    return;
  }
  op.forward_collectives.push_back(sum_over_tensor(sizes.columns));
  if (sequence) op.backward_collectives.push_back(gathered(sizes.columns));
}

LayerBuilder& LayerBuilder::expert_product(const LinearSizes& sizes) {
  product(sizes);
  Operator& op = last();
  if (execution().kept.keeps_every_second_product) {
    // Grouped products are not counted among the products: all of them run again.
    --products_;
    op.saved_bytes_selective = 0;
    op.selective_share = 1.0;
  }
  op.shape.kind = OperatorKind::expert_linear;
  op.shape.rows = expert_rows();
  op.shape.batch = kind_->moe->experts / layout_.expert;
  op.shape.copy_width = sizes.parallel == Parallel::rows ? sizes.columns : sizes.inner;
  op.shape.extra = sizes.parallel == Parallel::rows && kind_->moe->expert.bias;
  op.parameters *= op.shape.batch;
  op.expert_parameters = true;
  op.backward_workspace_bytes = rounded(op.shape.rows * sizes.inner * unit_);
  op.weight_operand_bytes = rounded(op.shape.rows * (sizes.inner + sizes.columns) * unit_);
  op.gradient_kept_bytes = sizes.parallel == Parallel::rows ? 0 : op.backward_workspace_bytes;
  if (layout_.expert > 1) add_expert_collectives(sizes, op);
  if (has_extra_kernels(op.shape, execution())) {
    // The bias is added in fp32: the sums of each expert, and their concatenation. The backward has a
    // gradient in fp32 and one in 16 bits.
    const int64_t results = op.shape.rows * op.shape.columns;
    op.forward_workspace_bytes += rounded(results * 8);
    op.backward_workspace_bytes += rounded(results * 6);
  }
  return *this;
}

// Dispatch before the first product, combine after the second, and both again for the gradients. Ranks that
// split an expert also gather and scatter among themselves.
void LayerBuilder::add_expert_collectives(const LinearSizes& sizes, Operator& op) const {
  const bool dispatch = sizes.parallel == Parallel::columns;
  const int64_t rows = expert_rows(), width = dispatch ? sizes.inner : sizes.columns;
  const int64_t parts = sends_to_parts(layout_) ? 1 : layout_.expert_split();
  Collective exchange{CollectiveKind::all_to_all, CollectiveGroup::expert, rows / parts * width * unit_};
  if (layout_.execution->traffic.deduplicates_dispatch) {
    const MixtureOfExperts& e = *kind_->moe;
    exchange.route = {e.experts_per_token, e.expert_groups, e.groups_per_token};
  }
  op.forward_collectives = {exchange};
  op.backward_collectives = {exchange};
  if (!dispatch) op.forward_workspace_bytes = rounded(rows * width * unit_);
  if (parts == 1) return;
  const Collective gather{CollectiveKind::all_gather, CollectiveGroup::expert_tensor, rows * width * unit_};
  Collective scatter = gather;
  scatter.kind = CollectiveKind::reduce_scatter;
  op.forward_collectives.push_back(dispatch ? gather : scatter);
  op.backward_collectives.push_back(dispatch ? scatter : gather);
}

// Attention that writes its scores to memory.
void LayerBuilder::keep_scores(int64_t scores) {
  const bool plain = execution().kernels.attention == AttentionKernel::plain;
  const bool dropout = execution().kernels.dropout, widens = execution().kept.fp32_softmax;
  const Attention& a = *kind_->attention;
  int64_t softmax = unit_ + (plain && a.score_cap ? unit_ : 0);  // a cap keeps its result
  if (plain && widens && !a.sinks && unit_ < 4) softmax += 4;
  // Softmax, the dropout mask and the result of dropout (arXiv:2205.05198, section 4.1). Selective recompute
  // drops them.
  keep(rounded(scores * (softmax + (dropout ? unit_ + 1 : 0))), 0);
  // plain: scores and a copy of them, which is masked in place. Backward uses the same mask.
  last().forward_workspace_bytes = (plain ? 2 : 1) * rounded(scores * unit_);
  if (plain && !widens) keep(rounded(layout_.micro_batch * sequence_ * sequence_), 0);
  // The gradient of dropout's output and the gradient of its input; a fused softmax changes the latter in
  // place. PyTorch's softmax has the latter, its product with the result and a separate gradient.
  last().backward_workspace_bytes += (plain ? 3 : dropout ? 2 : 1) * rounded(scores * unit_);
}

LayerBuilder& LayerBuilder::attention(const AttentionSizes& sizes) {
  const bool exchanges_heads = layout_.context_method == ContextMethod::all_to_all;
  const Attention& a = *kind_->attention;
  const int64_t heads = share(a.heads);
  const int64_t parts = exchanges_heads ? layout_.context : 1;
  // The compressions that all heads share have one key and one value.
  OperatorShape s =
      sequence_shape(OperatorKind::attention, heads / parts, std::max<int64_t>(1, sizes.kv_heads / parts));
  if (exchanges_heads) s.context = 1;
  s.head_dim = sizes.head_dim;
  s.value_head_dim = sizes.value_head_dim;
  if (const double packed = packed_sequences_of_work(); packed > 1.0) {
    s.sequence = int64_t(double(sequence_) / packed);
    s.batch = int64_t(std::llround(double(s.batch) * double(sequence_) / double(s.sequence)));
  }
  s.scaled = score_scale_of(a) > 0.0;
  s.capped = a.score_cap.has_value();
  if (a.window) s.inner = *a.window;
  if (a.index) s.inner = a.index->chosen * a.index->block;
  if (sizes.window > 0) s.inner = sizes.window;
  if (a.chunk && *a.chunk < s.sequence) {
    s.batch *= (s.sequence + *a.chunk - 1) / *a.chunk;
    s.sequence = *a.chunk;
  }
  add({"attention.core", Module::attention_core, s});
  const bool core_stays = execution().kept.keeps_every_second_product && execution().kept.keeps_core_output;
  last().selective_share = core_stays ? 0.0 : 1.0;
  if (a.sinks) last().parameters = heads;
  core_input_bytes_ = bytes(sizes.qkv_columns);
  keep_both(core_input_bytes_);
  if (execution().kept.keeps_sliced_projection) keep_both(bytes(sizes.sliced));
  if (execution().kept.copies_core_output) keep_both(bytes(heads * sizes.value_head_dim));
  last().backward_workspace_bytes = last().gradient_kept_bytes =
      core_input_bytes_ + (a.sinks ? rounded_states(heads) : 0);
  if (writes_scores(execution().kernels.attention)) {
    keep_scores(layout_.micro_batch * s.heads * sequence_ * sequence_);
  } else {
    keep(state_bytes(heads), 0);  // log-sum-exp
  }
  if (core_stays) last().saved_bytes_selective = state_bytes(heads) + bytes(heads * sizes.value_head_dim);
  if (layout_.context > 1) add_context_collectives(sizes, last());
  return *this;
}

// Ring: keys and values of all ranks pass each rank while it computes; in backward their gradients return,
// too. All-to-all: queries, keys and values are exchanged before the core, and its output after it.
void LayerBuilder::add_context_collectives(const AttentionSizes& sizes, Operator& op) const {
  const int64_t heads = share(kind_->attention->heads);
  const int64_t queries = heads * sizes.head_dim, outputs = heads * sizes.value_head_dim;
  if (layout_.context_method == ContextMethod::all_to_all) {
    // Three buffers of an exchange: sent, received, and reordered.
    op.forward_workspace_bytes += 3 * bytes(outputs);
    op.backward_workspace_bytes += 2 * bytes(outputs) + 3 * bytes(sizes.qkv_columns);
    const int64_t message = tokens_ * (sizes.qkv_columns + outputs) * unit_;
    op.forward_collectives = {{CollectiveKind::all_to_all, CollectiveGroup::context, message}};
    op.backward_collectives = op.forward_collectives;
    return;
  }
  // A block of keys and values in use and one arriving. In the backward also their gradients in full
  // precision: one leaving, one arriving and one being computed; and the gradient of the queries.
  const int64_t keys = sizes.qkv_columns - queries;
  op.forward_workspace_bytes += 2 * bytes(keys) + (unit_ < 4 ? state_bytes(outputs) : 0);
  op.backward_workspace_bytes += 2 * bytes(keys) + 3 * state_bytes(keys) + state_bytes(queries);
  const int64_t message = tokens_ * layout_.context * keys * unit_;
  op.forward_collectives = {{CollectiveKind::all_gather, CollectiveGroup::context, message, true}};
  op.backward_collectives = {{CollectiveKind::all_gather, CollectiveGroup::context, message, true},
                             {CollectiveKind::reduce_scatter, CollectiveGroup::context, message, true}};
}

LayerBuilder& LayerBuilder::residual(std::string_view name, Module module) {
  add({name, module, local_shape(OperatorKind::residual_add, model_.hidden)});
  // The branch's gradient is the sum's gradient times the factor, which needs another tensor.
  if (model_.residual_scale && execution().allocator.counts_each_buffer) {
    const int64_t parts = model_.parallel_residual && kind_ != nullptr && kind_->has_mixer() ? 2 : 1;
    last().backward_workspace_bytes = last().gradient_kept_bytes = parts * local_bytes(model_.hidden);
  }
  if (layout_.execution->kernels.dropout) {
    const int64_t mask = rounded(local_tokens_ * model_.hidden);
    keep(mask, mask);
  }
  return *this;
}

LayerBuilder& LayerBuilder::activation(const Operator& op, int64_t input_columns) {
  const int64_t input = rounded(op.shape.rows * input_columns * unit_);
  add(op);
  keep(input, input);
  if (layout_.execution->kernels.elementwise == ElementwiseKernels::eager)
    keep_both(op.shape.rows * input_columns * execution().kept.activation_bytes);
  last().backward_workspace_bytes = last().gradient_kept_bytes = input;
  // With two kernels the gate's activation is kept for the product with the other half.
  if (last().shape.gated && layout_.execution->kernels.elementwise == ElementwiseKernels::eager)
    keep_both(rounded(last().shape.rows * last().shape.columns * unit_));
  // The limit is applied to a copy, which is kept in addition to the input.
  if (has_extra_kernels(last().shape, execution())) keep_both(input);
  return *this;
}

void LayerBuilder::choose_recomputed() {
  const SelectiveRecompute& s = layout_.selective;
  if (s == SelectiveRecompute{}) return;
  const unsigned reruns = reruns_of(s, *kind_);
  for (Operator& op : program_.operators) {
    const ModuleRules& rules = rules_of(op.module);
    if (!s.core && ((rules.again | rules.drops) & kRerunCore) != 0) {
      op.saved_bytes_selective = op.saved_bytes;
      op.selective_share = 0.0;
    }
    if ((rules.again & reruns) != 0) op.selective_share = 1.0;
    if ((rules.drops & reruns) != 0) op.saved_bytes_selective = 0;
    const bool remakes_input = op.module == Module::attention_core && (reruns & kRerunLatentRotary) != 0;
    if (remakes_input && !s.core) op.saved_bytes_selective = op.saved_bytes - core_input_bytes_;
  }
}

LayerProgram LayerBuilder::take_layer() {
  if (!execution().kept.keeps_every_second_product) choose_recomputed();
  freeze();
  move_to_host();
  program_.input_bytes = rounded(local_tokens_ * model_.hidden * residual_unit_) * model_.residual_streams;
  program_.recomputed_whole = layout_.execution->kept.recomputes_whole_layer;
  if (execution().kept.keeps_every_second_product)
    program_.operators.front().saved_bytes_selective += program_.input_bytes;
  add_gathered_tokens();
  keep_both(rounded(local_tokens_ * model_.hidden * layout_.execution->kept.extra_kept_bytes));
  return std::move(program_);
}

}  // namespace mpt::models
