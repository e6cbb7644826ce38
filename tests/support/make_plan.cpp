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
  layout.execution.vocabulary_multiple = request.vocabulary_multiple;
  layout.precision = request.precision;
  layout.order = request.order;
  layout.recomputed_layers = request.recomputed_layers;
  layout.layers_per_stage = request.layers_per_stage.empty() ? even_stages(plan.model.layers, layout.stages())
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
  m.layers = layers;
  m.hidden = 32;
  m.vocab = 256;
  m.max_positions = 64;
  m.heads = m.kv_heads = 4;
  m.head_dim = 8;
  m.ffn_hidden = 64;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = true;
  m.tied_embeddings = true;
  return m;
}

ModelSpec little_llama(int64_t layers) {
  ModelSpec m = little_gpt(layers);
  m.name = "little-llama";
  m.norm = NormKind::rms_norm;
  m.position = PositionKind::rotary;
  m.kv_heads = 4;
  m.heads = 8;
  m.head_dim = 4;
  m.qkv_bias = m.attention_output_bias = m.mlp_bias = false;
  m.gated_mlp = true;
  m.activation = ActivationKind::silu;
  m.tied_embeddings = false;
  return m;
}

ModelSpec little_mixtral(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-mixtral";
  m.moe = MixtureOfExperts{};
  m.moe->experts = 4;
  m.moe->experts_per_token = 2;
  m.moe->expert_ffn_hidden = 32;
  m.moe->balance_loss = 0.1;
  return m;
}

ModelSpec little_grouped(int64_t layers) {
  ModelSpec m = little_mixtral(layers);
  m.name = "little-grouped";
  m.moe->experts = 12;
  m.moe->experts_per_token = 4;
  m.moe->expert_groups = 4;
  m.moe->groups_per_token = 2;
  return m;
}

ModelSpec little_qwen(int64_t layers) {
  ModelSpec m = little_llama(layers);
  m.name = "little-qwen";
  m.query_key_norm = QueryKeyNorm::per_head;
  m.tied_embeddings = true;
  m.rotary_scaling = RotaryScaling{RotaryScalingKind::llama3, 8.0, 1.0, 4.0, 32};
  return m;
}

}  // namespace mpt::test
