// SPDX-License-Identifier: Apache-2.0
#include "models/layer_program.h"

#include "models/layer_builder.h"
#include "models/layer_kinds.h"

namespace mpt::models {
namespace {

using M = Module;

struct MlpNames {
  std::string_view up, activation, down;
};
constexpr MlpNames kMlp{"mlp.up", "mlp.activation", "mlp.down"};
constexpr MlpNames kSharedExpert{"mlp.shared.up", "mlp.shared.activation", "mlp.shared.down"};

// `input_kept`: an operator before it already keeps the input.
// `joined`: as LinearSizes.
void add_dense_mlp(LayerBuilder& b, const MlpNames& names, const Mlp& mlp, bool input_kept, bool joined) {
  const int64_t hidden = b.model().hidden;
  const int64_t ffn = b.share(mlp.ffn_hidden), up = ffn * (mlp.gated ? 2 : 1);
  const std::array<int64_t, 3> parts{ffn, mlp.gated ? ffn : 0};
  b.linear({names.up, M::mlp_up, up, hidden, mlp.bias, Parallel::columns, parts, true, joined})
      .saves(input_kept ? 0 : hidden);
  OperatorShape shape = b.shape(OperatorKind::activation, ffn);
  shape.gated = mlp.gated;
  shape.extra = mlp.activation_limit.has_value();
  b.activation({names.activation, M::mlp_activation, shape}, up);
  b.last().in_epilogue = b.is_in_epilogue(mlp, ffn);
  if (mlp.activation == ActivationKind::xielu) b.last().parameters = 2;
  b.linear({names.down, M::mlp_down, hidden, ffn, mlp.bias, Parallel::rows, {}, true, joined}).saves(ffn);
}

// With both a dense MLP and experts, Gemma 4 has separate norms and scales for each; LongCat has none.
bool norms_beside(const LayerBuilder& b) {
  return b.kind().mlp && b.kind().moe && b.model().norm_placement == NormPlacement::sandwich;
}

void add_router(LayerBuilder& b, const MixtureOfExperts& e) {
  const int64_t choices = e.experts + e.zero_experts;
  // The router runs in 16 bits even with fp8. Megatron-LM's router is not a product of Transformer Engine,
  // and its choice must not depend on 8 bits.
  LinearSizes router{"mlp.router", M::router, choices, b.model().hidden, e.router_bias, Parallel::replicated};
  router.fp8 = false;
  b.linear(router).saves(b.model().hidden);
  if (b.execution().kept.fp32_router_input) b.saves_local_state(b.model().hidden);
  if (norms_beside(b)) b.last().parameters += b.model().hidden + e.experts;  // scales (Gemma 4)
  b.add({"mlp.router_softmax", M::experts, b.local_shape(OperatorKind::router, choices)})
      .saves_local_state(choices);
}

// Next to a dense MLP, experts have a norm before and one after them, and the MLP one after it (Gemma 4).
void add_norms_beside(LayerBuilder& b) {
  b.norm("mlp.dense_post_norm", M::mlp, b.model().hidden);
  b.norm("mlp.experts_norm", M::experts, b.model().hidden);
  b.norm("mlp.experts_post_norm", M::experts, b.model().hidden);
}

// Routed experts (Fedus et al. 2021, arXiv:2101.03961; Jiang et al. 2024, arXiv:2401.04088): each token
// visits experts_per_token of them. Without expert parallelism every rank of the tensor group holds its share
// of every expert's width. With it tokens go to their experts and back by all-to-all (arXiv:2006.16668). The
// load is assumed to be balanced, as the router's loss intends.
void add_experts(LayerBuilder& b) {
  const ModelSpec& m = b.model();
  const MixtureOfExperts& e = *b.kind().moe;
  const Mlp& mlp = e.expert;
  const int64_t ffn = b.expert_share(mlp.ffn_hidden), up = ffn * (mlp.gated ? 2 : 1);
  const int64_t width = e.latent_width > 0 ? e.latent_width : m.hidden;
  add_router(b, e);
  if (e.latent_width > 0)
    b.linear({"mlp.latent_down", M::experts, width, m.hidden, false, Parallel::replicated});
  b.expert_linear({"mlp.experts_up", M::experts_up, up, width, mlp.bias, Parallel::columns})
      .saves_copies(width);
  OperatorShape shape = b.shape(OperatorKind::activation, ffn);
  shape.rows = b.expert_rows();
  shape.gated = mlp.gated;
  shape.extra = mlp.activation_limit.has_value();
  b.activation({"mlp.experts_activation", M::experts_activation, shape}, up);
  b.expert_linear({"mlp.experts_down", M::experts_down, width, ffn, mlp.bias, Parallel::rows})
      .saves_copies(ffn);
  if (b.execution().kept.keeps_expert_outputs) b.saves_expert_outputs(width);
  if (e.latent_norm) b.norm("mlp.latent_norm", M::experts, width);
  if (e.latent_width > 0)
    b.linear({"mlp.latent_up", M::experts, m.hidden, width, false, Parallel::replicated}).saves_local(width);
  if (e.shared_ffn_hidden == 0) return;
  Mlp shared = mlp;
  shared.ffn_hidden = e.shared_ffn_hidden;
  shared.bias = false;
  const bool joined = b.execution().traffic.joins_shared_experts && b.expert_ranks() == 1;
  add_dense_mlp(b, kSharedExpert, shared, /*input_kept=*/true, joined);
  if (!e.shared_gate) return;
  // The gate, and the output that it multiplies.
  b.linear({"mlp.shared_gate", M::mlp, 1, m.hidden, false, Parallel::replicated})
      .saves_local(1)
      .saves_local(m.hidden);
  if (b.execution().allocator.counts_each_buffer)
    b.last().backward_workspace_bytes += b.local_bytes(m.hidden);
}

// Adds the input and output of a part of a layer, if the residual has several streams or is stored by blocks
// of layers. Streams: a product of all streams gives the weights of a token's mixture (Xie et al. 2025,
// arXiv:2512.24880, section 4). Blocks: a normed sum over the stored residuals (NVIDIA-NeMo/Automodel,
// components/models/kimi_linear/model.py).
void add_residual_mixture(LayerBuilder& b, Module module, std::string_view weights,
                          std::string_view mixture) {
  const ModelSpec& m = b.model();
  if (m.residual_streams > 1) {
    const int64_t n = m.residual_streams, made = n * (2 + n);
    b.linear({weights, module, made, n * m.hidden, false, Parallel::replicated, {}, /*fp8=*/false})
        .saves_local(n * m.hidden);
    b.last().parameters += made + 3;
    b.recompute_if(&SelectiveRecompute::streams);
    b.add({mixture, module, b.local_shape(OperatorKind::residual_add, 2 * n * m.hidden)});
    b.recompute_if(&SelectiveRecompute::streams);
  }
  if (m.residual_block == 0) return;
  const int64_t stored = 1 + (m.layers.count() - 1) / m.residual_block;
  b.add({mixture, module, b.local_shape(OperatorKind::residual_add, m.hidden * (stored + 1) / 2)})
      .saves_local(m.hidden / (2 * m.residual_block));
  b.last().parameters = 2 * m.hidden;
}

// The layer's embedding of the tokens, gated by the layer's output (Gemma 3n).
void add_layer_embedding(LayerBuilder& b) {
  const int64_t hidden = b.model().hidden, width = b.model().layer_embedding;
  if (width == 0) return;
  b.linear({"mlp.layer_gate", M::mlp, width, hidden, false, Parallel::replicated}).saves_local(hidden);
  OperatorShape shape = b.local_shape(OperatorKind::activation, width);
  shape.gated = true;
  b.activation({"mlp.layer_activation", M::mlp, shape}, 2 * width);
  b.linear({"mlp.layer_projection", M::mlp, hidden, width, false, Parallel::replicated}).saves_local(width);
  b.norm("mlp.layer_norm", M::mlp, hidden);
  b.residual("mlp.layer_residual", M::mlp);
}

// Rows of the token table, which is split by vocabulary. The output is not counted.
void add_lookup(LayerBuilder& b, std::string_view name, const Layout& layout) {
  const ModelSpec& m = b.model();
  OperatorShape shape = b.shape(OperatorKind::embedding, m.hidden);
  shape.inner = b.vocabulary_share();
  b.add({name, M::token_table, shape});
  Operator& op = b.last();
  op.saved_bytes = op.saved_bytes_selective = LayerBuilder::rounded(b.tokens() * 4);
  if (layout.sequence_parallel) op.forward_workspace_bytes = b.bytes(m.hidden);
  if (layout.sequence_parallel || m.embedding_scale)
    op.backward_workspace_bytes = op.weight_workspace_bytes = b.bytes(m.hidden);
  if (layout.tensor > 1) op.forward_collectives.push_back(b.sum_over_tensor(m.hidden));
  if (layout.sequence_parallel) op.backward_collectives.push_back(b.gather_over_tensor(m.hidden));
}

// The table of all layers' embeddings, and a projection of the token embeddings that is added to it.
void add_layer_tables(LayerBuilder& b, const Layout& layout) {
  const ModelSpec& m = b.model();
  if (m.layer_embedding == 0) return;
  const int64_t width = m.layers.count() * m.layer_embedding;
  OperatorShape shape = b.shape(OperatorKind::embedding, width);
  const int64_t rows = m.layer_vocab > 0 ? m.layer_vocab : m.vocab;
  shape.inner = padded_share(rows, layout.tensor, layout.execution->kernels.vocabulary_multiple);
  b.add({"embedding.layers", M::token_table, shape}).saves_all_tokens(width);
  b.last().parameters = shape.inner * width;
  b.linear({"embedding.layer_projection", M::embedding, width, m.hidden, false, Parallel::replicated})
      .saves_local(m.hidden);
  b.last().parameters += m.layer_embedding;
}

// While a loss by chunks runs. Liger's chunks have so many tokens that their logits have tokens x hidden
// elements, in 16 bits and in fp32 (linkedin/Liger-Kernel, ops/fused_linear_cross_entropy.py); the gradient
// of the head's input stays. torchtitan sums that gradient in fp32, and its chunks are parts of the sequence.
// Their logits are in 16 bits, with the same copies as those of a whole loss (torchtitan 0.3.0,
// torchtitan/components/loss.py). TRL's tiles are in 16 bits in one buffer (trl 1.16.0,
// trl/kernels/chunked_logprob.py).
int64_t chunk_bytes(const LayerBuilder& b, int64_t columns, int64_t split) {
  const int64_t hidden = b.model().hidden, chunks = b.execution().kernels.loss_chunks;
  const int64_t words = std::min(b.execution().kernels.loss_tile_words, columns);
  if (chunks == 0) return 3 * b.bytes(hidden) + std::min<int64_t>(b.tokens(), 4096) * words * 2;
  const bool compiled = b.execution().kernels.elementwise == ElementwiseKernels::compiled;
  const int64_t logits =
      compiled ? (2 + split) * b.bytes(columns)
               : b.bytes(columns) + (b.execution().kept.logit_copies + split) * b.state_bytes(columns);
  return b.state_bytes(hidden) + logits / chunks;
}

// The gradient of a trained head that a loss by chunks makes. Those of earlier micro-batches are counted
// elsewhere. Liger makes it in the forward, in the weight's type. TRL sums it in fp32, and narrows the sum.
int64_t head_gradient_bytes(const LayerBuilder& b, const OperatorShape& head) {
  const Execution& e = b.execution();
  if (b.training().freezes(FrozenPart::head) || e.kernels.loss_chunks > 0) return 0;
  const int64_t own = e.states.frees_pieces || e.states.weight_bytes == 2 ? 2 : 4;
  const int64_t sum = e.kernels.loss_tile_words > 0 && own < 4 ? 4 : 0;
  return LayerBuilder::rounded(head.columns * head.inner * (own + sum));
}

// Output projection and loss over this rank's share of the vocabulary, or over all of it.
void add_loss(LayerBuilder& b, std::string_view output, std::string_view name) {
  const ModelSpec& m = b.model();
  const auto& kernels = b.execution().kernels;
  const int64_t rows = b.vocabulary_share();
  // Mostly in 16 bits even if the layers' products run in fp8. Megatron-LM's output layer uses Transformer
  // Engine only with fp8_output_proj, and torchtitan's recipes exclude it from fp8.
  LinearSizes product{output, M::head_output, rows, m.hidden, m.head_bias};
  product.fp8 = kernels.fp8_head;
  b.linear(product).saves(m.hidden);
  if (b.execution().kept.empty_gradients)
    b.last().backward_workspace_bytes +=
        LayerBuilder::rounded(rows * m.hidden * element_bytes(b.last().shape.precision));
  const int64_t gradient = head_gradient_bytes(b, b.last().shape);
  const bool gathers = kernels.gathers_logits && b.tensor_ranks() > 1;
  const int64_t columns = gathers ? rows * b.tensor_ranks() : rows;
  b.add({name, M::head, b.shape(OperatorKind::cross_entropy, columns)});
  const bool chunked = kernels.loss == LossKernel::chunked;
  const Kept& kept = b.execution().kept;
  // A loss of the model's result casts the rank's logits before it gathers them.
  const bool cast_first = gathers && b.execution().states.frees_head_before_loss;
  const bool fp32 = kernels.loss == LossKernel::fp32, frees = fp32 && kept.frees_logits;
  // Of a soft cap by several operators the result of tanh stays.
  const bool capped = m.logit_cap && kernels.elementwise == ElementwiseKernels::eager;
  if (!chunked) b.saves_all_tokens(columns * (int{!frees} + int{capped}));
  Operator& loss = b.last();
  loss.forward_workspace_bytes = b.state_bytes(1) + b.state_bytes(2);
  const int64_t split = b.tensor_ranks() > 1 && !gathers ? kept.split_logit_copies : 0;
  if (chunked) loss.forward_workspace_bytes += chunk_bytes(b, columns, split);
  if (chunked && kernels.loss_chunks == 0) {
    loss.backward_workspace_bytes = loss.forward_workspace_bytes + gradient;
    if (kernels.loss_tile_words == 0) loss.forward_workspace_bytes += gradient;
  } else if (chunked) {
    loss.backward_workspace_bytes = b.state_bytes(m.hidden) + b.bytes(columns) / kernels.loss_chunks;
  }
  if (fp32) {
    // In addition to the logits: their fp32 copy, which becomes the softmax, and in the backward its
    // gradient. If all of that is done in place, the gradient in 16 bits replaces the logits.
    const auto copy = LayerBuilder::rounded(b.tokens() * columns * 4), more = kept.logit_copies + split - 1;
    loss.saved_bytes += copy;
    loss.saved_bytes_selective += copy;
    loss.forward_workspace_bytes += frees ? b.bytes(cast_first ? rows : columns) + copy : more * copy;
    loss.backward_workspace_bytes = frees ? more * copy : kept.logit_copies > 1 ? copy : 0;
  }
  // torch.compile also computes in one pass, but writes the gradient into a second buffer.
  if (kernels.loss == LossKernel::fused && kernels.elementwise == ElementwiseKernels::compiled)
    loss.backward_workspace_bytes = (1 + split) * b.bytes(columns);
  if (gathers) {
    // The gathered logits in one buffer, then the pieces of the other ranks, which are concatenated
    // (torch.distributed.all_gather). The collective's stream frees both late.
    Collective whole = b.gather_over_tensor(columns);
    if (fp32 && cast_first) whole.bytes = b.tokens() * columns * 4;
    loss.forward_workspace_bytes += fp32 && cast_first ? LayerBuilder::rounded(b.tokens() * rows * 4)
                                                       : b.bytes(columns) + b.bytes(columns - rows);
    loss.forward_collectives = {whole};
  } else if (b.tensor_ranks() > 1) {
    loss.forward_collectives = {b.state_all_reduce(1), b.state_all_reduce(2)};
  }
}

}  // namespace

LayerProgram layer_program(const ModelSpec& model, const LayerKind& kind, const Layout& layout,
                           int64_t sequence) {
  LayerBuilder b(model, layout, sequence, &kind);
  const NormPlacement place = model.norm_placement;
  const bool before = place != NormPlacement::post;
  const bool behind = place == NormPlacement::post || place == NormPlacement::sandwich;
  if (kind.has_mixer()) {
    add_residual_mixture(b, M::mixer, "attention.streams", "attention.mixture");
    if (before) b.norm("attention.norm", M::mixer_norm, model.hidden);
    add_mixers(b);
    if (behind) b.norm("attention.post_norm", M::mixer, model.hidden);
    // With parallel residuals one sum of three replaces the first addition.
    if (!model.parallel_residual || !kind.has_mlp()) b.residual("attention.residual", M::mixer);
  }
  if (kind.has_mlp()) {
    add_residual_mixture(b, M::mlp, "mlp.streams", "mlp.mixture");
    const Execution& e = b.execution();
    const bool beside = model.parallel_residual && kind.has_mixer();
    if (before && place != NormPlacement::shared)  // autograd keeps a tensor once
      b.norm("mlp.norm", M::mlp_norm, model.hidden, beside && !e.allocator.counts_each_buffer);
    const bool shares_norm = beside && place == NormPlacement::shared && !e.kept.narrows_each_input;
    if (kind.mlp) add_dense_mlp(b, kMlp, *kind.mlp, shares_norm && e.kept.shares_norm_output, false);
    if (norms_beside(b)) add_norms_beside(b);
    if (kind.moe) add_experts(b);
    if (behind) b.norm("mlp.post_norm", M::mlp_result, model.hidden);
    b.residual("mlp.residual", M::mlp_result);
    add_layer_embedding(b);
  }
  return b.take_layer();
}

LayerProgram layer_program(const ModelSpec& model, int64_t layer, const Layout& layout, int64_t sequence) {
  LayerProgram program = layer_program(model, model.layers[layer], layout, sequence);
  program.kind = LayerKinds(model).of(layer);
  return program;
}

LayerProgram embedding_program(const ModelSpec& model, const Layout& layout, int64_t sequence) {
  LayerBuilder b(model, layout, sequence, nullptr);
  add_lookup(b, "embedding", layout);
  b.last().parameters = b.vocabulary_share() * model.hidden +
                        (model.position == PositionKind::learned ? model.max_positions * model.hidden : 0);
  b.last().forward_workspace_bytes += b.local_bytes(model.hidden);
  if (model.embedding_norm) b.norm("embedding.norm", M::embedding, model.hidden);
  add_layer_tables(b, layout);
  return b.take();
}

LayerProgram head_program(const ModelSpec& model, const Layout& layout, int64_t sequence) {
  LayerBuilder b(model, layout, sequence, nullptr);
  if (const int64_t n = model.residual_streams; n > 1) {
    b.linear({"head.streams", M::head, n, n * model.hidden, false, Parallel::replicated, {}, /*fp8=*/false})
        .saves_local(n * model.hidden);
    b.last().parameters += n + 1;
  }
  b.norm("head.norm", M::head, model.hidden);
  if (model.residual_block > 0) b.last().parameters += 2 * model.hidden;
  add_loss(b, "head.output", "head.loss");
  b.add_gathered_tokens();
  return b.take();
}

LayerProgram next_token_input_program(const ModelSpec& model, const Layout& layout, int64_t sequence,
                                      int64_t depth) {
  LayerBuilder b(model, layout, sequence, nullptr);
  const int64_t hidden = model.hidden;
  add_lookup(b, "next_token.embedding", layout);
  // A last stage has a copy of the token table for them.
  if (depth == 0 && layout.pipeline > 1 && !model.tied_embeddings)
    b.last().parameters = b.vocabulary_share() * hidden;
  b.norm("next_token.embedding_norm", M::head, hidden);
  b.norm("next_token.norm", M::head, hidden, /*input_kept=*/true);  // the head's product keeps it
  if (b.execution().kernels.splits_next_token_projection) {
    b.linear({"next_token.embedding_projection", M::head, hidden, hidden, false, Parallel::replicated});
    b.saves_local(hidden).last().forward_workspace_bytes = b.local_bytes(hidden);
    b.linear({"next_token.projection", M::head, hidden, hidden, false, Parallel::replicated});
    b.saves_local(hidden).last().forward_workspace_bytes = b.local_bytes(hidden);
    b.residual("next_token.residual", M::head);
  } else {
    b.linear({"next_token.projection", M::head, b.share(hidden), 2 * hidden}).saves(2 * hidden);
  }
  return b.take();
}

LayerProgram next_token_head_program(const ModelSpec& model, const Layout& layout, int64_t sequence) {
  LayerBuilder b(model, layout, sequence, nullptr);
  b.norm("next_token.head_norm", M::head, model.hidden);
  add_loss(b, "next_token.output", "next_token.loss");
  b.add_gathered_tokens();
  LayerProgram program = b.take();
  for (Operator& op : program.operators)
    if (op.shape.kind == OperatorKind::linear) op.parameters = 0;
  return program;
}

LayerProgram last_stage_program(const ModelSpec& model, const Layout& layout, int64_t sequence,
                                const LayerProgram* layer) {
  LayerProgram program = head_program(model, layout, sequence);
  const auto append = [&](const LayerProgram& part) {
    program.operators.insert(program.operators.end(), part.operators.begin(), part.operators.end());
  };
  for (int64_t depth = 0; depth < model.next_token_layers; ++depth) {
    append(next_token_input_program(model, layout, sequence, depth));
    append(layer != nullptr ? *layer : layer_program(model, model.layers.count() - 1, layout, sequence));
    append(next_token_head_program(model, layout, sequence));
  }
  return program;
}

ParameterShare parameter_share(const LayerProgram& program) {
  ParameterShare share;
  for (const Operator& op : program.operators) {
    (op.expert_parameters ? share.frozen_expert_bytes : share.frozen_bytes) += op.frozen_bytes;
    share.scale_bytes += op.scale_bytes;
    if (!op.shape.frozen) (op.expert_parameters ? share.expert : share.dense) += op.parameters;
  }
  return share;
}

int64_t parameters(const LayerProgram& program) {
  return sum_of<int64_t>(program.operators, &Operator::parameters);
}

int64_t saved_bytes(const LayerProgram& program, Recompute recompute) {
  if (recompute == Recompute::full && program.input_bytes > 0) return program.input_bytes;
  return sum_of<int64_t>(program.operators, [&](const Operator& op) {
    return recompute == Recompute::none ? op.saved_bytes : op.saved_bytes_selective;
  });
}

double model_flop_per_token(const ModelSpec& model, int64_t sequence, const Training& training) {
  Layout one;
  one.training = training;
  const auto flop = [](const LayerProgram& program) {
    return sum_of<double>(program.operators, [](const Operator& op) {
      return forward_flop(op.shape) + input_gradient_flop(op.shape) + weight_gradient_flop(op.shape);
    });
  };
  const LayerKinds kinds(model);
  std::vector<double> of_kind;
  for (size_t kind = 0; kind < kinds.size(); ++kind)
    of_kind.push_back(flop(layer_program(model, kinds.kind(kind), one, sequence)));
  double sum = flop(head_program(model, one, sequence));
  for (int64_t layer = 0; layer < model.layers.count(); ++layer) sum += of_kind[kinds.of(layer)];
  return sum / double(sequence);
}

}  // namespace mpt::models
