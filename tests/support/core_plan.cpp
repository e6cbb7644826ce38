// SPDX-License-Identifier: Apache-2.0
#include "tests/support/core_plan.h"

#include "base/quantity.h"
#include "core/schedule_catalog.h"

namespace mpt::test {

ModelSpec small_model(int64_t layers) {
  ModelSpec model;
  model.name = "small";
  model.hidden = 64;
  model.vocab = 256;
  model.max_positions = 128;
  LayerKind layer;
  layer.attention =
      Attention{.heads = 4, .kv_heads = 4, .head_dim = 16, .qkv_bias = true, .output_bias = true};
  layer.mlp = Mlp{.ffn_hidden = 256, .bias = true};
  model.layers = LayerList(layers, layer);
  model.tied_embeddings = true;
  return model;
}

std::vector<StageFootprint> distinct_footprints(int64_t stages) {
  std::vector<StageFootprint> footprints;
  for (int64_t s = 0; s < stages; ++s) {
    StageFootprint f;
    f.parameter_bytes = 1000 + s;
    f.gradient_bytes = 2000 + s;
    f.optimizer_bytes = 4000 + s;
    f.boundary_bytes = 64;
    f.saved_bytes = 500 + 10 * s;
    f.saved_for_weight_bytes = 100 + s;
    f.forward_workspace_bytes = 30 + s;
    f.backward_workspace_bytes = 70 + s;
    footprints.push_back(f);
  }
  return footprints;
}

Plan core_plan(const std::string& schedule, int64_t pipeline, int64_t chunks, int64_t micro_batches,
               int64_t data, int64_t tensor) {
  Plan plan;
  plan.model = small_model(std::max<int64_t>(8, pipeline * chunks));
  plan.layout.pipeline = pipeline;
  plan.layout.chunks = chunks;
  plan.layout.data = data;
  plan.layout.tensor = tensor;
  plan.layout.schedule = schedule;
  plan.layout.layers_per_stage = even_stages(plan.model.layers.count(), pipeline * chunks);
  plan.workload = {micro_batches * data, 32};
  plan.cluster.name = "test";
  plan.cluster.device = {"test-device", DeviceKind::cpu, kGiB, 1e10, 1e11, 1e11};
  plan.cluster.devices = plan.cluster.devices_per_node = plan.layout.ranks();
  plan.cluster.levels = {{"shared-memory", plan.layout.ranks(), 1e-6, 1e10}};
  plan.memory_limit_bytes = kGiB;
  plan.footprints = distinct_footprints(plan.layout.stages());
  const Schedule made =
      find_schedule(schedule, "test").generate(int(pipeline), int(chunks), int(micro_batches));
  plan.schedule = schedule_rows(made);
  const StepProgram program = program_of(plan);
  plan.program_digest = program_digest(program);
  plan.cost = {"profile", "test", "2026-01-01T00:00:00Z", "0123456789abcdef"};
  for (int64_t s = 0; s < plan.layout.stages(); ++s) {
    for (const auto& [kind, name] : EnumNames<InstructionKind>::table()) {
      plan.durations.push_back({kind, s, kind == InstructionKind::backward ? 2e-3 : 1e-3});
    }
  }
  plan.durations.push_back({InstructionKind::reduce_norm, -1, 1e-4});
  plan.prediction.step_time_s = 0.1;
  for (int64_t r = 0; r < plan.layout.pipeline; ++r) plan.prediction.memory.push_back({r});
  return plan;
}

StepProgram on_single_lanes(StepProgram program) {
  for (Lane& lane : program.lane_table) lane.stream = Stream::compute;
  return program;
}

}  // namespace mpt::test
