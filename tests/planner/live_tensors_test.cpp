// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/json.h"
#include "core/schedule_catalog.h"
#include "frameworks/framework.h"
#include "frameworks/transformers/classes.h"
#include "models/footprint.h"
#include "models/zoo.h"
#include "planner/memory/memory_model.h"
#include "planner/request/resolve_parts.h"

namespace mpt::planner {
namespace {

struct SeenPeak {
  const char *framework, *model;
  int64_t zero, data, tensor, micro_batch, sequence, micro_batches;
  Recompute recompute;
  double peak_gib;
  int64_t stages = 1;
  int64_t layers = 0;  // all, or so many of the first kind
  LossKernel loss = LossKernel::fp32;
  double tolerance = 0.025;
  int64_t adapters = 0;  // rank of LoRA on all products
  FrozenFormat frozen = FrozenFormat::bf16;
  std::string_view schedule = "1f1b";
};

// Live tensors at the peak of a step of the framework's own code (mpt.verify; torch 2.15.0, transformers
// 5.24.0, accelerate 1.15.0, torchtitan 0.3.0 with eager kernels). Most that can be on a rank:
// the head's logits, its gathered weights, or its whole gradients.
const SeenPeak kSeenPeaks[] = {
    {"pytorch", "qwen3-8b", 3, 8, 1, 4, 4096, 4, Recompute::full, 48.99},
    {"pytorch", "llama2-13b", 3, 4, 2, 2, 4096, 1, Recompute::none, 52.93},
    {"pytorch", "llama3-8b", 3, 32, 1, 1, 4096, 1, Recompute::full, 10.72},
    {"pytorch", "qwen3-4b", 2, 8, 2, 1, 1024, 4, Recompute::full, 8.75},
    {"transformers-fsdp", "qwen3-8b", 3, 8, 1, 2, 2048, 1, Recompute::full, 20.81},
    {"transformers-fsdp", "llama3-8b", 3, 32, 1, 1, 4096, 4, Recompute::none, 35.23},
    {"transformers-fsdp", "phi-4", 2, 8, 1, 1, 2048, 1, Recompute::none, 71.646},
    {"transformers-fsdp", "qwen2.5-7b", 3, 32, 1, 1, 1024, 1, Recompute::none, 12.19},
    {"torchtitan", "llama3-8b", 3, 8, 1, 1, 1024, 1, Recompute::full, 17.66},
    {"torchtitan", "qwen3-8b", 3, 8, 1, 1, 1024, 8, Recompute::none, 24.74},
    {"torchtitan", "llama3-8b", 3, 8, 1, 1, 4096, 1, Recompute::full, 18.21},
    // The first stage holds all micro-batches before any gradient is there, and outputs of each.
    {"pytorch", "qwen2.5-7b", 2, 8, 1, 2, 4096, 4, Recompute::none, 50.2, 4},
    {"pytorch", "llama2-13b", 2, 8, 1, 4, 4096, 4, Recompute::full, 32.24, 4},
    // Each tensor rank sums the gradient of the whole token table.
    {"pytorch", "llama3-8b", 2, 2, 2, 1, 2048, 8, Recompute::full, 14.887, 4},
    // Norms, attention and MLP are checkpointed apart.
    {"automodel", "llama3-8b", 3, 16, 1, 2, 4096, 4, Recompute::full, 24.6},
    {"automodel", "qwen2.5-7b", 3, 8, 1, 2, 2048, 4, Recompute::full, 18.2},
    // A layer's gradients are whole beside its weights, the next layer's, and the copy of the layer above.
    {"torchtitan", "llama2-13b", 3, 32, 1, 1, 1024, 1, Recompute::selective, 4.594, 1, 8,
     LossKernel::chunked},
    {"transformers-fsdp", "olmoe-1b-7b", 3, 8, 1, 1, 2048, 2, Recompute::full, 8.546, 1, 6},
    {"transformers-fsdp", "olmoe-1b-7b", 3, 8, 1, 1, 1024, 4, Recompute::none, 11.076, 1, 8},
    {"torchtitan", "qwen3-30b-a3b", 3, 16, 1, 1, 1024, 4, Recompute::selective, 10.08, 1, 6,
     LossKernel::chunked},
    // A gather has the padding of whole experts, and a gradient has not: 8 experts on 32 and on 3 ranks.
    {"transformers-fsdp", "mixtral-8x7b", 3, 32, 1, 2, 4096, 2, Recompute::none, 52.225, 1, 4},
    {"pytorch", "mixtral-8x7b", 3, 3, 1, 2, 1024, 4, Recompute::full, 113.535, 1, 12},
    // Weights that a forward gathered go layer by layer in the backward.
    {"transformers-fsdp", "phi4", 2, 6, 1, 1, 2048, 1, Recompute::full, 14.516, 1, 6},
    // Two weights of one table: gathered to the end, with two gradients that are reduced at once.
    {"torchtitan", "llama3.2-1b", 3, 16, 1, 1, 1024, 2, Recompute::selective, 3.696, 1, 8},
    {"torchtitan", "qwen3-1.7b", 3, 32, 1, 2, 1024, 1, Recompute::none, 4.326, 1, 4},
    {"torchtitan", "llama3.2-1b", 3, 16, 1, 1, 1024, 4, Recompute::selective, 4.319, 1, 6,
     LossKernel::chunked},
    // Tensor ranks gather the logits in fp32. Its own classes have norms of one kernel.
    {"automodel", "llama3-8b", 3, 4, 2, 4, 1024, 2, Recompute::none, 10.72, 1, 6, LossKernel::fp32, 0.04},
    {"automodel", "qwen2.5-7b", 3, 2, 4, 2, 4096, 2, Recompute::full, 17.394, 1, 6, LossKernel::fp32, 0.08},
    {"automodel", "llama2-13b", 3, 4, 2, 4, 2048, 2, Recompute::none, 12.383, 1, 8, LossKernel::fp32, 0.04},
    // DDP has no gradients before the first backward of a step.
    {"transformers-ddp", "llama3.2-1b", 0, 8, 1, 1, 4096, 1, Recompute::none, 28.502, 1, 12},
    {"transformers-ddp", "llama3.2-1b", 0, 8, 1, 1, 4096, 2, Recompute::none, 32.2, 1, 12},
    {"transformers-ddp", "smollm2-1.7b", 0, 8, 1, 1, 1024, 4, Recompute::full, 13.622, 1, 8},
    // A shared table has three gradients at once. Autocast's copies of weights end with the forward.
    {"transformers-ddp", "llama3.2-1b", 0, 16, 1, 1, 1024, 1, Recompute::full, 13.65, 1, 6, LossKernel::fp32,
     0.01},
    {"transformers-ddp", "olmo2-1b", 0, 12, 1, 1, 4096, 2, Recompute::full, 17.84, 1, 4, LossKernel::fp32,
     0.01},
    // A frozen table that the head shares stays gathered, and has no gradients.
    {"transformers-fsdp", "llama3.2-1b", 3, 8, 1, 1, 1024, 2, Recompute::full, 2.104, 1, 4, LossKernel::fp32,
     0.01, 16},
    {"transformers-fsdp", "gemma-7b", 3, 8, 1, 2, 1024, 2, Recompute::none, 12.118, 1, 8, LossKernel::fp32,
     0.01, 16},
    {"transformers-fsdp", "qwen3-0.6b", 2, 8, 1, 1, 1024, 2, Recompute::full, 2.504, 1, 12, LossKernel::fp32,
     0.01, 16},
    // A process alone has no buckets.
    {"transformers-ddp", "llama3.2-1b", 0, 1, 1, 1, 2048, 2, Recompute::none, 17.507, 1, 8, LossKernel::fp32,
     0.01},
    // TRL's loss sums the gradient of a trained head in fp32. A frozen head is gathered apart from FSDP2.
    {"trl", "qwen2.5-7b", 3, 8, 1, 1, 2048, 2, Recompute::none, 11.931, 1, 6, LossKernel::chunked, 0.01},
    {"trl", "gemma-7b", 3, 8, 1, 2, 1024, 2, Recompute::full, 11.224, 1, 6, LossKernel::chunked, 0.01},
    {"trl", "llama3-8b", 3, 4, 1, 2, 1024, 2, Recompute::none, 5.734, 1, 8, LossKernel::chunked, 0.01, 16},
    {"trl", "llama3-8b", 3, 8, 1, 1, 2048, 2, Recompute::none, 4.497, 1, 8, LossKernel::chunked, 0.01, 16,
     FrozenFormat::nf4},
    // The embedding is gathered beside the first layer, which runs again.
    {"trl", "phi4", 3, 12, 1, 4, 1024, 1, Recompute::full, 2.673, 1, 4, LossKernel::chunked, 0.01, 8,
     FrozenFormat::nf4},
    {"trl-ddp", "qwen3-0.6b", 0, 2, 1, 2, 2048, 2, Recompute::none, 9.008, 1, 8, LossKernel::chunked},
    {"trl-ddp", "qwen2.5-7b", 0, 1, 1, 2, 2048, 2, Recompute::none, 13.577, 1, 12, LossKernel::chunked, 0.01,
     16, FrozenFormat::nf4},
    // Outputs of experts in fp32, and in the backward three more.
    {"torchtitan", "qwen3-30b-a3b", 3, 4, 2, 2, 4096, 1, Recompute::full, 10.131, 1, 4, LossKernel::chunked,
     0.05},
    // In a pipeline the copy of the head's gradient that a loss by chunks reduces stays until the next loss.
    {"torchtitan", "llama3-8b", 2, 6, 1, 1, 4096, 2, Recompute::selective, 17.37, 2, 12, LossKernel::chunked,
     0.025, 0, FrozenFormat::bf16, "gpipe"},
    {"torchtitan", "qwen3-8b", 2, 3, 1, 4, 1024, 4, Recompute::full, 14.16, 4, 4, LossKernel::chunked, 0.05,
     0, FrozenFormat::bf16, "gpipe"},
    {"torchtitan", "llama3-8b", 2, 6, 1, 1, 4096, 4, Recompute::selective, 21.1, 2, 12, LossKernel::chunked},
    // A chunk's gradient of the head, and its cast, beside the sum and the chunk's logits.
    {"torchtitan", "qwen3-4b", 3, 8, 1, 1, 4096, 2, Recompute::none, 10.337, 1, 6, LossKernel::chunked,
     0.015},
    {"torchtitan", "qwen3-1.7b", 3, 8, 1, 2, 4096, 2, Recompute::none, 9.716, 1, 6, LossKernel::chunked,
     0.015},
    {"torchtitan", "qwen3-8b", 2, 3, 2, 4, 4096, 2, Recompute::selective, 15.75, 1, 6, LossKernel::chunked,
     0.015},
};

class LiveTensors : public testing::TestWithParam<SeenPeak> {};

TEST_P(LiveTensors, PeakIsThatOfTheFrameworksOwnCode) {
  const SeenPeak& m = GetParam();
  ModelSpec model = models::load_model(m.model);
  if (m.layers > 0) model.layers = LayerList(m.layers, model.layers[0]);
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution = frameworks::as_class_of(model, frameworks::framework_named(m.framework, "test"),
                                             frameworks::load_framework(m.framework, "test"));
  layout.training.edit().adapter_rank = m.adapters;
  if (m.adapters > 0)
    layout.training.edit().adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up,
                                              AdapterTarget::down};
  layout.training.edit().frozen_format = m.frozen;
  SearchProblem problem;
  problem.training = layout.training;
  problem.execution = layout.execution;
  narrow_adapters(problem);
  layout.execution = problem.execution;
  layout.execution.edit().kernels.elementwise = ElementwiseKernels::eager;
  layout.execution.edit().kernels.loss = m.loss;
  layout.execution.edit().states.whole_at_start = 0;  // a step does not have the peak of the start
  layout.data = layout.shard = m.data;
  layout.tensor = m.tensor;
  layout.sequence_parallel = m.tensor > 1;
  layout.micro_batch = m.micro_batch;
  layout.zero = m.zero;
  layout.recompute = m.recompute;
  layout.pipeline = m.stages;
  layout.schedule = m.schedule;
  layout.layers_per_stage.assign(size_t(m.stages), model.layers.count() / m.stages);
  const auto footprints =
      models::stage_footprints(model, layout, {m.data * m.micro_batch * m.micro_batches, m.sequence});
  const Schedule schedule =
      find_schedule(layout.schedule, "test").generate(int(m.stages), 1, int(m.micro_batches));
  const auto ranks = rank_memory(schedule, footprints);
  const RankMemory memory = *max_by(ranks, [](const RankMemory& r) { return r.peak_bytes; });
  EXPECT_NEAR(double(memory.peak_bytes) / (m.peak_gib * (1 << 30)), 1.0, m.tolerance)
      << describe_memory(memory);
}

INSTANTIATE_TEST_SUITE_P(OfRuns, LiveTensors, testing::ValuesIn(kSeenPeaks));

// Without gradients before the only backward a step holds less than with them, by no more than their shares.
TEST(LiveTensors, GradientsOfASingleMicroBatchComeInItsBackward) {
  const ModelSpec model = models::load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.execution = frameworks::load_framework("pytorch", "test");
  layout.data = layout.shard = 8;
  layout.zero = 3;
  layout.layers_per_stage = {32};
  const auto peak = [&](int64_t micro_batches) {
    const auto footprints = models::stage_footprints(model, layout, {8 * micro_batches, 4096});
    const auto schedule = find_schedule(layout.schedule, "test").generate(1, 1, int(micro_batches));
    return rank_memory(schedule, footprints).front();
  };
  const double shares = 4 * 8.03e9 / 8;
  EXPECT_NEAR(double(peak(2).peak_bytes - peak(1).peak_bytes) / shares, 1.0, 0.01);
  EXPECT_EQ(peak(2).peak_bytes, peak(4).peak_bytes);
  EXPECT_EQ(peak(2).gradient_bytes, peak(1).gradient_bytes);
}

// With and without optimizers on hosts, and where gradients come late: a plan that holds them is read back.
TEST(LiveTensors, FootprintsOfAllFrameworksAreReadBackAsTheyWereWritten) {
  int64_t late = 0;
  for (const std::string& framework : frameworks::framework_names())
    for (const char* name : {"qwen3.5-4b", "llama3-8b", "mixtral-8x7b"})
      for (const bool offload : {false, true})
        for (const int64_t zero : {0, 1, 2, 3}) {
          const ModelSpec model = models::load_model(name);
          Layout layout;
          layout.precision = Precision::bf16;
          layout.execution = frameworks::load_framework(framework, "test");
          layout.data = layout.shard = 8;
          layout.zero = zero;
          layout.offload_optimizer = offload;
          layout.layers_per_stage = {model.layers.count()};
          for (const StageFootprint& f : models::stage_footprints(model, layout, {8, 1024})) {
            EXPECT_EQ(to_json(from_json<StageFootprint>(to_json(f), "plan.json")), to_json(f))
                << framework << ' ' << name;
            late += f.late_gradient_bytes > 0;
          }
        }
  EXPECT_GT(late, 0);
}

}  // namespace
}  // namespace mpt::planner
