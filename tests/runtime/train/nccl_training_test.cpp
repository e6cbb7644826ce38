// SPDX-License-Identifier: Apache-2.0

// Training with a GPU for each rank and NCCL between them gives the CPU's loss curve. GPUs and NCCL are those
// on the CPU, which refuse what CUDA and NCCL forbid.

#include <gtest/gtest.h>
#include <nccl.h>

#include <numeric>

#include "models/footprint.h"
#include "models/rank_groups.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"
#include "tests/support/loss_curve.h"
#include "tests/support/nccl_gpus.h"

namespace mpt::runtime {
namespace {

using test::Curve;
using test::loss_curve;
using test::WantedPlan;

struct Case {
  const char* name;
  WantedPlan request;
  friend void PrintTo(const Case& c, std::ostream* to) { *to << c.name; }
};

std::vector<Case> cases() {  // NOLINT(readability-function-size): a table
  const auto with = [](const ModelSpec& model, const Workload& workload, auto&& change) {
    WantedPlan request;
    request.model = model;
    request.workload = workload;
    change(request);
    return request;
  };
  const Workload little{4, 16}, deep{8, 8};
  return {
      {"Pipeline2", with(test::little_gpt(2), little, [](WantedPlan& r) { r.pipeline = 2; })},
      {"Pipeline3", with(test::little_gpt(3), little, [](WantedPlan& r) { r.pipeline = 3; })},
      {"Pipeline4", with(test::little_llama(4), deep, [](WantedPlan& r) { r.pipeline = 4; })},
      {"Pipeline8", with(test::little_gpt(8), deep, [](WantedPlan& r) { r.pipeline = 8; })},
      {"Interleaved", with(test::little_gpt(4), deep,
                           [](WantedPlan& r) { r.pipeline = r.chunks = 2, r.schedule = "interleaved"; })},
      // As the first plan of Llama 3 8B for eight GPUs.
      {"EightGpus", with(test::little_llama(14), {16, 16},
                         [](WantedPlan& r) {
                           r.pipeline = 2, r.data = 4, r.chunks = 7, r.zero = 1;
                           r.schedule = "interleaved";
                         })},
      {"VShaped", with(test::little_gpt(6), deep,
                       [](WantedPlan& r) { r.pipeline = 3, r.chunks = 2, r.schedule = "zb-v"; })},
      {"ZeroBubbleData", with(test::little_gpt(3), deep,
                              [](WantedPlan& r) { r.pipeline = 3, r.data = 2, r.schedule = "zb-h1"; })},
      {"TensorSequenceBeside", with(test::little_llama(2), little,
                                    [](WantedPlan& r) {
                                      r.tensor = 2, r.pipeline = 2;
                                      r.sequence_parallel = r.overlap_tensor = true;
                                    })},
      // The third and fourth rank have padding alone.
      {"PaddedVocabulary",
       with(test::little_gpt(1), little, [](WantedPlan& r) { r.tensor = 4, r.vocabulary_multiple = 128; })},
      {"ContextRing",
       with(test::little_llama(2), little, [](WantedPlan& r) { r.context = 2, r.pipeline = 2; })},
      {"ContextAllToAll",
       with(test::little_qwen(2), little,
            [](WantedPlan& r) { r.context = 2, r.context_method = ContextMethod::all_to_all; })},
      {"Experts", with(test::little_mixtral(2), little, [](WantedPlan& r) { r.data = r.expert = 2; })},
      // Every micro-batch has products of new sizes, whose kernels are loaded while others transfer.
      {"ExpertsPipeline", with(test::little_mixtral(2), {8, 16},
                               [](WantedPlan& r) {
                                 r.pipeline = r.data = r.expert = 2, r.zero = 1;
                                 r.schedule = "zb-h1";
                                 r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                               })},
      {"ExpertsContext",
       with(test::little_mixtral(2), little, [](WantedPlan& r) { r.data = r.context = r.expert = 2; })},
      {"ExpertsTensorSequence", with(test::little_mixtral(2), little,
                                     [](WantedPlan& r) { r.tensor = 2, r.sequence_parallel = true; })},
      {"SpreadExpertsTensorSequence", with(test::little_mixtral(2), little,
                                           [](WantedPlan& r) {
                                             r.tensor = r.data = r.expert = 2;
                                             r.sequence_parallel = true;
                                           })},
      {"Zero1Beside", with(test::little_gpt(2), little,
                           [](WantedPlan& r) {
                             r.data = 2, r.zero = 1, r.pipeline = 2;
                             r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                           })},
      {"Zero3BesideOffloaded", with(test::little_llama(2), little,
                                    [](WantedPlan& r) {
                                      r.data = 2, r.zero = 3, r.offload_optimizer = true;
                                      r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                                    })},
  };
}

// Handles of all ranks.
int64_t planned_communicators(const WantedPlan& request) {
  const Plan plan = test::make_plan(request);
  const auto counts = models::communicator_counts(plan.layout, program_of(plan).rank_of_stage,
                                                  models::trains_shared_table(plan.model, plan.layout));
  return std::accumulate(counts.begin(), counts.end(), int64_t{0}) * plan.layout.ranks() /
         plan.layout.pipeline;
}

class NcclTraining : public testing::TestWithParam<Case> {
 protected:
  // One that failed is not the next one's failure.
  void TearDown() override { cuda_on_cpu::forget_failure(); }
};

TEST_P(NcclTraining, GivesTheCpusLossCurve) {
  NcclGpus gpus;
  constexpr int64_t kSteps = 2;
  // Padding changes memory alone.
  WantedPlan on_cpus = GetParam().request;
  on_cpus.vocabulary_multiple = 1;
  const Curve cpu = loss_curve(on_cpus, nullptr, kSteps);
  std::vector<int64_t> allocations, communicators;
  const int64_t others = nccl_on_cpu::communicators();  // that tests before have left
  const Curve gpu = loss_curve(GetParam().request, &gpus, kSteps, [&] {
    allocations.push_back(cuda_on_cpu::allocations());
    communicators.push_back(nccl_on_cpu::communicators() - others);
  });
  ASSERT_EQ(gpu.loss.size(), size_t(kSteps));
  for (size_t i = 0; i < size_t(kSteps); ++i) {
    EXPECT_NEAR(gpu.loss[i], cpu.loss[i], 1e-5 * cpu.loss[i]) << "step " << i + 1;
    EXPECT_NEAR(gpu.norm[i], cpu.norm[i], 1e-4 * cpu.norm[i]) << "step " << i + 1;
  }
  // Later the driver would wait for all work of a GPU.
  EXPECT_EQ(allocations.back(), allocations.front()) << "memory was asked for after the first step";
  EXPECT_EQ(communicators.front(), planned_communicators(GetParam().request));
  if (GetParam().request.vocabulary_multiple == 1) {
    EXPECT_EQ(gpu.peak_bytes, cpu.peak_bytes);
  }
  const char* first = "";
  EXPECT_EQ(nccl_on_cpu::take_mistakes(&first), 0) << first;
}

INSTANTIATE_TEST_SUITE_P(Layouts, NcclTraining, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mpt::runtime
