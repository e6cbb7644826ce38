// SPDX-License-Identifier: Apache-2.0
#include "tests/support/make_plan.h"

#include "base/quantity.h"
#include "core/schedule_catalog.h"
#include "models/footprint.h"

namespace mpt::test {

Plan make_plan(const WantedPlan& request) {
  Plan plan;
  plan.model = request.model;
  plan.workload = request.workload;
  Layout& layout = plan.layout;
  layout.tensor = request.tensor;
  layout.pipeline = request.pipeline;
  layout.data = request.data;
  layout.chunks = request.chunks;
  layout.micro_batch = request.micro_batch;
  layout.schedule = request.schedule;
  layout.recompute = request.recompute;
  layout.sequence_parallel = request.sequence_parallel;
  layout.expert = request.expert;
  if (request.expert > 1) layout.expert_tensor = request.expert_tensor;
  layout.context = request.context;
  layout.context_method = request.context_method;
  layout.overlap_gradient_reduce = request.overlap_gradient_reduce;
  layout.overlap_parameter_gather = request.overlap_parameter_gather;
  layout.overlap_tensor = request.overlap_tensor;
  layout.zero = request.zero;
  layout.offload_optimizer = request.offload_optimizer;
  if (layout.zero > 0) layout.shard = request.shard > 0 ? request.shard : layout.replicas();
  layout.execution.edit().kernels.vocabulary_multiple = request.vocabulary_multiple;
  layout.precision = request.precision;
  layout.order = request.order;
  layout.recomputed_layers = request.recomputed_layers;
  layout.layers_per_stage = request.layers_per_stage.empty()
                                ? even_stages(plan.model.layers.count(), layout.stages())
                                : request.layers_per_stage;
  plan.cluster.name = "test";
  plan.cluster.device = {"test-device", DeviceKind::cpu, kGiB, 1e10, 1e11, 1e11};
  plan.cluster.devices = plan.cluster.devices_per_node = layout.ranks();
  plan.cluster.levels = {{"shared-memory", layout.ranks(), 1e-6, 1e10}};
  plan.memory_limit_bytes = kGiB;
  plan.footprints = models::stage_footprints(plan.model, layout, plan.workload);
  const int64_t count = micro_batches(layout, plan.workload);
  plan.schedule = schedule_rows(
      find_schedule(layout.schedule, "test").generate(int(layout.pipeline), int(layout.chunks), int(count)));
  plan.program_digest = program_digest(program_of(plan));
  plan.cost = {"profile", "test", "", ""};
  for (int64_t s = 0; s < layout.stages(); ++s) {
    for (const auto& [kind, name] : EnumNames<InstructionKind>::table())
      plan.durations.push_back({kind, s, 1e-3});
  }
  plan.durations.push_back({InstructionKind::reduce_norm, -1, 1e-4});
  plan.prediction.step_time_s = 0.1;
  for (int64_t r = 0; r < plan.layout.pipeline; ++r) plan.prediction.memory.push_back({r});
  return plan;
}

ModelSpec little_gpt(int64_t layers) {
  ModelSpec m;
  m.name = "little-gpt";
  m.hidden = 32;
  m.vocab = 256;
  m.max_positions = 64;
  LayerKind layer;
  layer.attention =
      Attention{.heads = 4, .kv_heads = 4, .head_dim = 8, .qkv_bias = true, .output_bias = true};
  layer.mlp = Mlp{.ffn_hidden = 64, .bias = true};
  m.layers = LayerList(layers, layer);
  m.tied_embeddings = true;
  return m;
}

ModelSpec little_llama(int64_t layers) {
  ModelSpec m = little_gpt(layers);
  m.name = "little-llama";
  m.norm = NormKind::rms_norm;
  m.position = PositionKind::rotary;
  LayerKind layer;
  layer.attention = Attention{.heads = 8, .kv_heads = 4, .head_dim = 4, .rotary = Rotary{}};
  layer.mlp = Mlp{.ffn_hidden = 64, .gated = true, .activation = ActivationKind::silu};
  m.layers = LayerList(layers, layer);
  m.tied_embeddings = false;
  return m;
}

ModelSpec little_mixtral(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-mixtral";
  LayerKind layer = m.layers[0];
  MixtureOfExperts& moe = layer.moe.emplace();
  moe.experts = 4;
  moe.experts_per_token = 2;
  moe.expert = *layer.mlp;
  moe.expert.ffn_hidden = 32;
  moe.balance_loss = 0.1;
  layer.mlp.reset();
  m.layers = LayerList(layers, layer);
  return m;
}

ModelSpec little_grouped(int64_t layers) {
  ModelSpec m = little_mixtral(layers);
  m.name = "little-grouped";
  m.layers.change([](LayerKind& kind) {
    kind.moe->experts = 12;
    kind.moe->experts_per_token = 4;
    kind.moe->expert_groups = 4;
    kind.moe->groups_per_token = 2;
  });
  return m;
}

ModelSpec little_qwen(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-qwen";
  m.layers.change([](LayerKind& kind) {
    kind.attention->query_key_norm = QueryKeyNorm::per_head;
    kind.attention->rotary->scaling = RotaryScaling{RotaryScalingKind::llama3, 8.0, 1.0, 4.0, 32};
  });
  m.tied_embeddings = true;
  return m;
}

ModelSpec little_gemma(int64_t layers) {
  ModelSpec m = little_qwen(layers);
  m.name = "little-gemma";
  m.norm_placement = NormPlacement::sandwich;
  m.embedding_scale = 5.5;
  m.logit_cap = 3.0;
  LayerKind layer = m.layers[0];
  layer.mlp->activation = ActivationKind::gelu_tanh;
  layer.attention->score_cap = 2.0;
  layer.attention->score_scale = 0.4;
  layer.attention->rotary = Rotary{1e6, 1.0, {}};
  m.layers = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = layer;
    if (l % 2 == 1) return kind;
    kind.attention->window = 5;
    kind.attention->rotary = Rotary{};
    return kind;
  });
  return m;
}

ModelSpec little_olmo(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-olmo";
  m.norm_placement = NormPlacement::post;
  m.layers.change([](LayerKind& kind) { kind.attention->query_key_norm = QueryKeyNorm::full; });
  return m;
}

ModelSpec little_oss(int64_t layers) {
  ModelSpec m = little_mixtral(layers);
  m.name = "little-oss";
  LayerKind layer = m.layers[0];
  Attention& a = *layer.attention;
  a.qkv_bias = a.output_bias = a.sinks = true;
  a.rotary->scaling = RotaryScaling{.kind = RotaryScalingKind::yarn,
                                    .factor = 4.0,
                                    .original_positions = 16,
                                    .beta_fast = 8.0,
                                    .whole_dimensions = false};
  layer.moe->router_bias = layer.moe->bias_in_logits = layer.moe->expert.bias = true;
  layer.moe->expert.activation_limit = 0.05;
  m.layers = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = layer;
    if (l % 2 == 0) kind.attention->window = 5;
    return kind;
  });
  return m;
}

ModelSpec little_deepseek(int64_t layers) {
  ModelSpec m = little_grouped(layers);
  m.name = "little-deepseek";
  LayerKind layer = m.layers[0];
  Attention& a = *layer.attention;
  a.latent = LatentAttention{12, 16, 8, 4, 6};
  a.head_dim = 12;
  a.kv_heads = a.heads;
  a.rotary->scaling = RotaryScaling{.kind = RotaryScalingKind::yarn,
                                    .factor = 4.0,
                                    .original_positions = 16,
                                    .beta_fast = 8.0,
                                    .mscale = 1.0,
                                    .mscale_all_dim = 1.0};
  MixtureOfExperts& moe = *layer.moe;
  moe.expert.ffn_hidden = 16;
  moe.shared_ffn_hidden = 16;
  moe.router_bias = true;
  moe.bias_rate = 0.01;
  moe.scores = RouterScores::sigmoid;
  moe.routed_scale = 2.5;
  m.layers = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = layer;
    if (l > 0) return kind;
    kind.mlp = Mlp{.ffn_hidden = 48, .gated = true, .activation = ActivationKind::silu};
    kind.moe.reset();
    return kind;
  });
  return m;
}

ModelSpec little_predicting(int64_t layers) {
  ModelSpec m = little_deepseek(layers);
  m.name = "little-predicting";
  m.next_token_layers = 1;
  return m;
}

ModelSpec little_parallel(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-parallel";
  m.norm = NormKind::layer_norm;
  m.norm_bias = false;
  m.norm_placement = NormPlacement::shared;
  m.parallel_residual = m.tied_embeddings = true;
  const LayerKind layer = m.layers[0];
  m.layers = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = layer;
    if (l % 2 == 1) kind.attention->rotary.reset();
    return kind;
  });
  return m;
}

ModelSpec little_hybrid(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-hybrid";
  const LayerKind attention = m.layers[0];
  m.layers = LayerList::of(layers, [&](int64_t l) {
    LayerKind kind = attention;
    if (l % 4 == 3) return kind;
    kind.attention.reset();
    kind.linear = LinearMixer{.heads = 8, .head_dim = 8, .key_heads = 4, .key_dim = 8, .convolution = 4};
    if (l % 4 == 1) kind.mlp->ffn_hidden *= 4;
    return kind;
  });
  return m;
}

ModelSpec little_next(int64_t layers) {
  ModelSpec m = little_hybrid(layers);
  m.name = "little-next";
  m.layers.change([](LayerKind& kind) {
    if (kind.attention) {
      kind.attention->output_gate = OutputGate::elementwise;
      kind.attention->query_key_norm = QueryKeyNorm::per_head;
      kind.attention->rotary->fraction = 0.5;
    } else {
      kind.linear->chunk = 8;
    }
    MixtureOfExperts& moe = kind.moe.emplace();
    moe.experts = 4;
    moe.experts_per_token = 2;
    moe.expert = *kind.mlp;
    moe.expert.ffn_hidden = 16;
    moe.shared_ffn_hidden = 24;
    moe.shared_gate = true;
    kind.mlp.reset();
  });
  return m;
}

ModelSpec with_layers(ModelSpec model, int64_t layers) {
  const LayerList old = model.layers;
  model.layers = LayerList::of(layers, [&](int64_t l) { return old[l % old.count()]; });
  return model;
}

ModelSpec with_dense_layers(ModelSpec model, const std::function<bool(int64_t)>& dense) {
  const LayerList old = model.layers;
  model.layers = LayerList::of(old.count(), [&](int64_t l) {
    LayerKind kind = old[l];
    if (kind.moe && dense(l)) {
      kind.mlp = kind.moe->expert;
      kind.mlp->ffn_hidden *= 2;
      kind.moe.reset();
    }
    return kind;
  });
  return model;
}

}  // namespace mpt::test
