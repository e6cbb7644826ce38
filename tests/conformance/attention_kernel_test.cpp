// SPDX-License-Identifier: Apache-2.0

// Conformance test 4: of every attention of the zoo, the kernel that is priced for mpt-run on GPUs is the one
// that its device launches, and the price is of that kernel.

#include <gtest/gtest.h>

#include <array>

#include "models/layer_kinds.h"
#include "models/layer_program.h"
#include "models/zoo.h"
#include "planner/cost/attention_cost.h"
#include "planner/request/resolve.h"
#include "runtime/nn/rank_sizes.h"

namespace mpt::planner {
namespace {

constexpr int64_t kSequence = 8192;

struct OnGpus {
  explicit OnGpus(const char* cluster) {
    PlanRequest request;
    request.model.name = "gpt2-124m";
    request.cluster.name = cluster;
    request.framework = "mpt";
    request.global_batch = 64;
    resolved = resolve(request);
  }
  const DeviceSpec& device() const { return resolved->problem.cluster.device; }

  std::unique_ptr<Resolved> resolved;
};

Layout layout_of(const OnGpus& gpus, Precision precision, int64_t context) {
  Layout layout;
  layout.execution = gpus.resolved->problem.execution;
  layout.precision = precision;
  layout.context = context;
  layout.layers_per_stage = {1};
  return layout;
}

// As the device asks (runtime/device/cuda/cuda_device.cpp).
RuntimeAttention launched(const ModelSpec& model, const LayerKind& kind, const Layout& layout,
                          const DeviceSpec& device) {
  const bool half = layout.precision != Precision::fp32;
  const runtime::RankSizes sizes(model, layout, kSequence,
                                 half ? runtime::DataType::bfloat16 : runtime::DataType::float32, 0, 0);
  return runtime_attention(sizes.of(kind).attention().needs(half, layout.context > 1),
                           prefers_cudnn(device.compute_capability));
}

bool runs_here(const LayerKind& kind) {
  return kind.attention && !kind.attention->index && !kind.attention->chunk && !kind.attention->compressed;
}

TEST(AttentionKernels, ArePricedAsTheyAreLaunched) {
  std::array<int, 3> seen{};
  const double fastest_scalar = shipped_calibration().scalar_attention_flop_per_s;
  for (const char* cluster : {"dgx-h100:1", "dgx-a100:1"}) {
    const OnGpus gpus(cluster);
    for (const std::string& name : models::zoo_names()) {
      const ModelSpec model = models::load_model(name);
      const models::LayerKinds kinds(model);
      for (size_t k = 0; k < kinds.size(); ++k) {
        if (!runs_here(kinds.kind(k))) continue;
        for (const auto& [precision, context] :
             {std::pair{Precision::bf16, 1}, {Precision::bf16, 2}, {Precision::fp32, 1}}) {
          const Layout layout = layout_of(gpus, precision, context);
          const auto program = models::layer_program(model, kinds.kind(k), layout, kSequence);
          for (const models::Operator& op : program.operators) {
            if (op.shape.kind != models::OperatorKind::attention) continue;
            const std::string what = name + ", " + kinds.name(k) + " on " + cluster;
            const auto priced = runtime_kernel(op.shape, layout.execution, gpus.device());
            ASSERT_TRUE(priced) << what;
            EXPECT_EQ(*priced, launched(model, kinds.kind(k), layout, gpus.device())) << what;
            ++seen[size_t(*priced)];
            const double seconds = gpus.resolved->cost->operator_s(op.shape, profiler::Phase::forward);
            EXPECT_EQ(models::forward_flop(op.shape) / seconds <= fastest_scalar,
                      *priced == RuntimeAttention::scalar)
                << what << ": " << models::forward_flop(op.shape) / seconds;
          }
        }
      }
    }
  }
  for (const int times : seen) EXPECT_GT(times, 0);
}

}  // namespace
}  // namespace mpt::planner
