// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerBuilder: appends operators to a LayerProgram, with the sizes, parameters, bytes and collectives that
// follow from tensor parallelism. It also adds the mixers, the operators that mix the tokens of a layer. Used
// only by layer_program.cpp.

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/allocation.h"
#include "models/layer_operators.h"

namespace mpt::models {

/// How a linear layer is split (arXiv:1909.08053, section 3). With sequence parallelism a replicated one
/// works on the rank's part of the tokens.
enum class Parallel : uint8_t { replicated, columns, rows };

struct LinearSizes {
  std::string_view name;
  Module module;
  int64_t columns = 0, inner = 0;  // on this rank
  bool bias = false;
  Parallel parallel = Parallel::columns;
  /// Columns of the products that other frameworks run separately; all 0: it is one product.
  std::array<int64_t, 3> parts{};
  bool fp8 = true;      // if the layout's products run in fp8
  bool joined = false;  // shares a gathered input with other products, and sums of outputs by all-reduce
};

struct AttentionSizes {
  int64_t head_dim = 0, value_head_dim = 0, kv_heads = 0;  // on this rank
  int64_t qkv_columns = 0;                                 // width of queries, keys and values together
  int64_t window = 0;  // window with the same work as the keys that a query sees; 0: from the kind
  int64_t sliced = 0;  // columns, without the values', of a product of which the values may be a slice
};

/// Products of one operator: queries, keys and values, or both halves of a gated MLP; 1 where they are one.
/// Each has one adapter.
int64_t products_of(const LinearSizes& sizes, const Execution& execution);

class LayerBuilder {
 public:
  /// `kind`: the layer's kind; null for a piece that is no layer. All arguments must outlive the builder.
  LayerBuilder(const ModelSpec& model, const Layout& layout, int64_t sequence, const LayerKind* kind)
      : model_(model), layout_(layout), sequence_(sequence), kind_(kind) {
    program_.operators.reserve(kUsualOperators);
  }

  const ModelSpec& model() const { return model_; }
  const LayerKind& kind() const { return *kind_; }
  const Execution& execution() const { return layout_.execution; }
  const Training& training() const { return layout_.training; }
  int64_t tokens() const { return tokens_; }
  int64_t sequence() const { return sequence_; }
  int64_t tensor_ranks() const { return layout_.tensor; }
  bool has_norms_of_several_kernels() const {
    return execution().kernels.elementwise == ElementwiseKernels::eager && norm_bytes(unit_) > 0;
  }
  /// Bytes that a norm of several kernels keeps for each element of `unit` bytes, without that element. In
  /// fp32 it makes no wider copy.
  int64_t norm_bytes(int64_t unit) const {
    const Kept& kept = execution().kept;
    const int64_t more = model_.norm == NormKind::layer_norm ? kept.layer_norm_bytes : kept.rms_norm_bytes;
    return unit < 4 ? more : std::max(std::min<int64_t>(more, 4), more - 2);
  }
  int64_t context_ranks() const { return layout_.context; }
  int64_t expert_ranks() const { return layout_.expert; }
  int64_t share(int64_t whole) const { return (whole + layout_.tensor - 1) / layout_.tensor; }
  int64_t vocabulary_share() const { return models::vocabulary_share(model_, layout_); }
  int64_t expert_share(int64_t whole) const {
    return (whole + layout_.expert_split() - 1) / layout_.expert_split();
  }
  /// Copies of tokens that this rank's experts process; experts that compute nothing take their share.
  int64_t expert_rows() const {
    const MixtureOfExperts& e = *kind_->moe;
    const auto copies = [&](int64_t tokens) {
      return tokens * e.experts_per_token * e.experts / (e.experts + e.zero_experts);
    };
    if (layout_.expert == 1) return copies(tokens_);
    const int64_t even = copies(tokens_ * layout_.expert_split() / layout_.tensor);
    return int64_t(std::ceil(double(even) * execution().traffic.expert_load));
  }
  Operator& last() { return program_.operators.back(); }
  /// Whether the epilogues of an MLP's products compute its activation. cuBLASLt's epilogues need packs of 16
  /// bytes (runtime/device/cuda). Products that are computed in parts have none.
  bool is_in_epilogue(const Mlp& mlp, int64_t ffn) const {
    const bool wide = layout_.precision != Precision::bf16 && layout_.precision != Precision::fp16;
    const bool in_parts = layout_.overlap_tensor && layout_.sequence_parallel && layout_.tensor > 1;
    return execution().kernels.epilogue_activations && !wide && !in_parts &&
           mlp.activation == ActivationKind::gelu_tanh && !mlp.gated && !mlp.activation_limit && ffn % 8 == 0;
  }

  static int64_t rounded(int64_t bytes) { return rounded_bytes(bytes); }
  int64_t bytes(int64_t columns) const { return rounded(tokens_ * columns * unit_); }
  /// Bytes for the tokens that norms and residuals work on: all, or a share with sequence parallelism.
  int64_t local_bytes(int64_t columns) const { return rounded(local_tokens_ * columns * unit_); }
  /// Bytes of numbers in full precision, also if activations have 16 bits: statistics, maxima, sums.
  int64_t state_bytes(int64_t columns) const { return rounded_states(tokens_ * columns); }
  /// Bytes of `count` such numbers.
  int64_t rounded_states(int64_t count) const { return rounded(count * std::max<int64_t>(unit_, 4)); }
  int64_t local_state_bytes(int64_t columns) const { return rounded_states(local_tokens_ * columns); }
  /// With sequence parallelism a piece has a buffer for all tokens, which products gather and scatter. It has
  /// two if some arrive during products (other frameworks have separate buffers for that).
  void add_gathered_tokens() {
    if (!layout_.sequence_parallel) return;
    const bool twice = layout_.overlap_tensor && execution().allocator.counts_each_buffer;
    const int64_t room = bytes(model_.hidden) * (twice ? 2 : 1);
    last().forward_workspace_bytes += room;
    last().backward_workspace_bytes += room;
    last().weight_workspace_bytes += bytes(model_.hidden);
  }
  Collective tensor_all_reduce(int64_t columns) const {
    return {CollectiveKind::all_reduce, CollectiveGroup::tensor, tokens_ * columns * unit_};
  }
  Collective state_all_reduce(int64_t columns) const {
    return {CollectiveKind::all_reduce, CollectiveGroup::tensor,
            tokens_ * columns * std::max<int64_t>(unit_, 4)};
  }
  /// Sums partial results over tensor ranks: on every rank, or on the rank that has the tokens.
  Collective sum_over_tensor(int64_t columns) const {
    Collective c = tensor_all_reduce(columns);
    if (layout_.sequence_parallel) c.kind = CollectiveKind::reduce_scatter;
    return c;
  }
  Collective gather_over_tensor(int64_t columns) const {
    return {CollectiveKind::all_gather, CollectiveGroup::tensor, tokens_ * columns * unit_};
  }

  /// Gathers the last operator's columns of all tensor ranks on each of them, and sums their gradients
  /// (megatron-core 0.19.2, get_query_key_value_tensors in transformer/attention.py).
  void gather_columns(int64_t columns) {
    Collective whole = gather_over_tensor(columns * layout_.tensor);
    last().forward_collectives.push_back(whole);
    last().forward_workspace_bytes += bytes(columns * layout_.tensor);
    whole.kind = CollectiveKind::reduce_scatter;
    last().backward_collectives.push_back(whole);
  }

  /// Sends columns of the last operator's local tokens to every tensor rank. Each rank has a part of their
  /// gradient.
  void share_over_tensor(int64_t columns) {
    if (layout_.tensor == 1) return;
    if (layout_.sequence_parallel) last().forward_collectives.push_back(gather_over_tensor(columns));
    last().backward_collectives.push_back(sum_over_tensor(columns));
  }

  OperatorShape shape(OperatorKind kind, int64_t columns) const {
    OperatorShape s;
    s.kind = kind;
    s.precision = layout_.precision;
    s.rows = tokens_;
    s.columns = columns;
    return s;
  }

  OperatorShape local_shape(OperatorKind kind, int64_t columns) const {
    OperatorShape s = shape(kind, columns);
    s.rows = local_tokens_;
    return s;
  }

  /// Shape of an operator over whole sequences; it has no rows.
  OperatorShape sequence_shape(OperatorKind kind, int64_t heads, int64_t kv_heads) const {
    OperatorShape s = shape(kind, 0);
    s.rows = 0;
    s.batch = layout_.micro_batch;
    s.sequence = sequence_;
    s.heads = heads;
    s.kv_heads = kv_heads;
    s.context = layout_.context;
    return s;
  }

  LayerBuilder& add(const Operator& op) {
    program_.operators.push_back(op);
    if (execution().kept.keeps_every_second_product) last().selective_share = 1.0;
    return *this;
  }

  bool recomputes(bool SelectiveRecompute::*part) const { return layout_.selective.*part; }
  /// The last operator's input is recomputed if selective recompute includes `part`.
  void recompute_if(bool SelectiveRecompute::*part) {
    if (!recomputes(part)) return;
    last().saved_bytes_selective = 0;
    last().selective_share = 1.0;
  }

  /// Over context ranks tokens are exchanged for heads before the last operator, and back after it.
  void exchange_heads(int64_t input_columns, int64_t output_columns) {
    if (layout_.context == 1) return;
    const int64_t message = tokens_ * (input_columns + output_columns) * unit_;
    last().forward_collectives = {{CollectiveKind::all_to_all, CollectiveGroup::context, message}};
    last().backward_collectives = last().forward_collectives;
  }
  /// Over context ranks the last operator gathers `columns` of all tokens, only in the forward.
  void gather_over_context(int64_t columns) {
    if (layout_.context == 1) return;
    last().forward_collectives = {
        {CollectiveKind::all_gather, CollectiveGroup::context, tokens_ * layout_.context * columns * unit_}};
  }

  /// `input_kept`: an operator before it already keeps the input.
  LayerBuilder& norm(std::string_view name, Module module, int64_t width, bool input_kept = false);
  LayerBuilder& linear(const LinearSizes& sizes);
  LayerBuilder& expert_linear(const LinearSizes& sizes);
  LayerBuilder& attention(const AttentionSizes& sizes);
  /// Keeps its input, `input_columns` wide, for every row of the operator.
  LayerBuilder& activation(const Operator& op, int64_t input_columns);
  /// A gate on `columns` columns; it keeps its input, too.
  LayerBuilder& gated(std::string_view name, Module module, int64_t columns, int64_t input_columns) {
    OperatorShape s = shape(OperatorKind::activation, columns);
    s.gated = true;
    return activation({name, module, s}, input_columns);
  }
  LayerBuilder& residual(std::string_view name, Module module);

  /// The last operator, a linear, keeps its input of `columns` columns: only local tokens if they are
  /// gathered again, and one byte per element if the framework keeps the product's fp8 input.
  LayerBuilder& saves(int64_t columns) {
    if (remakes_input(last())) return *this;
    const int64_t rows = input_is_local_ && !execution().kept.gathered_inputs ? local_tokens_ : tokens_;
    return keep_both(rounded(product_input_bytes(last(), rows * columns)));
  }
  LayerBuilder& saves_local(int64_t columns) { return keep_both(local_bytes(columns)); }
  LayerBuilder& saves_local_state(int64_t columns) { return keep_both(local_state_bytes(columns)); }
  LayerBuilder& saves_all_tokens(int64_t columns) { return keep_both(bytes(columns)); }
  /// An RMS norm of several kernels keeps more than its input.
  LayerBuilder& saves_norm_copies(int64_t columns) {
    last().shape.extra = true;
    return keep_both(rounded(tokens_ * columns * norm_bytes(unit_)));
  }
  LayerBuilder& saves_states(int64_t columns) { return keep_both(state_bytes(columns)); }
  /// Keeps integers of 4 bytes for each token.
  LayerBuilder& saves_numbers(int64_t columns) { return keep_both(rounded(tokens_ * columns * 4)); }
  /// Keeps the product's input for every copy of a token that goes to an expert.
  LayerBuilder& saves_copies(int64_t columns) {
    return keep_both(rounded(product_input_bytes(last(), expert_rows() * columns)));
  }
  /// Keeps an expert's output for every copy, in the activations' precision. In fp32 the sum's backward has
  /// three more: the gradient that arrives, and its products with outputs and scores.
  LayerBuilder& saves_expert_outputs(int64_t columns) {
    const int64_t bytes = expert_output_bytes(columns);
    if (execution().kept.fp32_expert_outputs)
      last().backward_workspace_bytes = std::max(last().backward_workspace_bytes, 3 * bytes);
    return keep_both(bytes);
  }
  /// Keeps the attention core's output.
  LayerBuilder& saves_core_output(int64_t columns) {
    return keep(bytes(columns), execution().kept.keeps_core_output ? bytes(columns) : 0);
  }

  /// A decoder layer: with full recompute only its input is kept.
  LayerProgram take_layer();
  LayerProgram take() {
    freeze();
    return std::move(program_);
  }

 private:
  static constexpr size_t kUsualOperators = 24;  // no layer of today's models has more

  int64_t expert_output_bytes(int64_t columns) const {
    return rounded(expert_rows() * columns * (execution().kept.fp32_expert_outputs ? 4 : unit_));
  }
  /// Bytes of `elements` as a product keeps them: 8 bits each, or 4 bits with 8 for every 16 elements.
  /// torchao keeps the latter, too (prototype/moe_training/nvfp4_training/nvfp4_linear.py of 0.18.0).
  int64_t product_input_bytes(const Operator& op, int64_t elements) const {
    if (op.shape.precision == Precision::nvfp4) return elements / 16 * 9;
    return is_narrow(op.shape.precision) && execution().kept.keeps_fp8_inputs ? elements : elements * unit_;
  }
  /// Whether backward recomputes a product's input from the kept input of a norm or an activation before it.
  /// The modules named here get their input from other products or the attention core.
  bool remakes_input(const Operator& op) const {
    return execution().kept.remakes_fp8_inputs && is_narrow(op.shape.precision) &&
           op.shape.precision != Precision::nvfp4 &&
           execution().kernels.elementwise == ElementwiseKernels::compiled &&
           op.module != Module::attention_output && op.module != Module::mixer && op.module != Module::head;
  }
  LayerBuilder& keep_both(int64_t bytes) { return keep(bytes, bytes); }
  void keep_narrow_inputs(const LinearSizes& sizes, int64_t counted);
  void add_tensor_collectives(const LinearSizes& sizes, Operator& op) const;
  void add_expert_collectives(const LinearSizes& sizes, Operator& op) const;
  void keep_scores(int64_t scores);
  void add_context_collectives(const AttentionSizes& sizes, Operator& op) const;

  LayerBuilder& keep(int64_t always, int64_t selective) {
    last().saved_bytes += always;
    if (!execution().kept.keeps_every_second_product) last().saved_bytes_selective += selective;
    return *this;
  }
  void keep_every_second(const LinearSizes& sizes);
  LayerBuilder& product(const LinearSizes& sizes);
  LayerBuilder& expert_product(const LinearSizes& sizes);
  void add_widening(const LinearSizes& sizes, int64_t matrices);
  void add_adapter(const LinearSizes& sizes);
  void add_expert_adapter(const LinearSizes& sizes);
  void freeze();
  void move_to_host();
  double packed_sequences_of_work() const;
  void choose_recomputed();

  const ModelSpec& model_;
  const Layout& layout_;
  const int64_t sequence_;
  const LayerKind* const kind_;
  const int64_t tokens_ = layout_.micro_batch * sequence_ / layout_.context;
  const int64_t local_tokens_ = layout_.sequence_parallel ? tokens_ / layout_.tensor : tokens_;
  const int64_t unit_ = element_bytes(layout_.precision);
  // Products under autocast have narrow copies of inputs and weights. Between weights in fp32 residuals are
  // in fp32.
  const int64_t narrowed_ = execution().kept.narrows_each_input && unit_ < 4 ? unit_ : 0;
  const int64_t residual_unit_ = narrowed_ > 0 && !layout_.training->adapts() ? 4 : unit_;
  int64_t products_ = 0, core_input_bytes_ = 0;
  bool input_is_local_ = false;  // of the last linear: its input is kept before it is gathered
  LayerProgram program_;
};

/// Adds all mixers of the layer's kind; they read the same input.
void add_mixers(LayerBuilder& b);

/// FLOP of the core of a mixer of linear cost for one token and whole heads, in its chunked training form.
struct CoreFlop {
  int64_t forward = 0, backward = 0;
};
CoreFlop core_flop(const LinearMixer& mixer, int64_t heads);

}  // namespace mpt::models
