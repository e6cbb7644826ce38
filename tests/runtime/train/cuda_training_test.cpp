// SPDX-License-Identifier: Apache-2.0

// Training on CUDA devices gives the CPU's loss curve in every kind of layout.
// All ranks share one GPU and move its memory by themselves. Built twice, as device/cuda_device_test.cpp.

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gpu_under_test.h"
#include "tests/support/loss_curve.h"

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

// cuDNN's backward adds in an order that changes.
struct OwnAttention {
  OwnAttention() { setenv("MPT_ATTENTION", "own", 1); }
  ~OwnAttention() { unsetenv("MPT_ATTENTION"); }
};

std::vector<Case> cases() {  // NOLINT(readability-function-size): a table
  const ModelSpec gpt = test::little_gpt(2), llama = test::little_llama(2), mixtral = test::little_mixtral(2),
                  qwen = test::little_qwen(2);
  const auto with = [](const ModelSpec& model, auto&& change) {
    WantedPlan request;
    request.model = model;
    request.workload = {4, 16};
    change(request);
    return request;
  };
  return {
      {"OneRank", with(gpt, [](WantedPlan&) {})},
      {"TensorParallel", with(llama, [](WantedPlan& r) { r.tensor = 2, r.sequence_parallel = true; })},
      {"TensorParallelBeside", with(llama,
                                    [](WantedPlan& r) {
                                      r.tensor = 4, r.sequence_parallel = true;
                                      r.overlap_tensor = true;
                                    })},
      {"TensorParallelBesideSplitBackward", with(gpt,
                                                 [](WantedPlan& r) {
                                                   r.tensor = 2, r.pipeline = 2, r.schedule = "zb-h1";
                                                   r.overlap_tensor = true;
                                                 })},
      {"PipelineZeroBubble",
       with(gpt, [](WantedPlan& r) { r.pipeline = 2, r.schedule = "zb-h1", r.recompute = Recompute::full; })},
      {"DataParallelZero3", with(llama, [](WantedPlan& r) { r.data = 2, r.zero = 3; })},
      {"DataParallelBeside", with(gpt,
                                  [](WantedPlan& r) {
                                    r.data = 2, r.zero = 1;
                                    r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                                  })},
      {"DataParallelZero3Beside", with(llama,
                                       [](WantedPlan& r) {
                                         r.data = 2, r.zero = 3;
                                         r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                                       })},
      {"TensorPipelineData",
       with(gpt, [](WantedPlan& r) { r.tensor = 2, r.pipeline = 2, r.data = 2, r.zero = 1; })},
      {"ContextRing", with(llama, [](WantedPlan& r) { r.context = 2; })},
      {"ContextAllToAll",
       with(qwen, [](WantedPlan& r) { r.context = 2, r.context_method = ContextMethod::all_to_all; })},
      {"Experts", with(mixtral, [](WantedPlan& r) { r.data = 2, r.expert = 2; })},
      {"HeadNorm", with(qwen, [](WantedPlan&) {})},
      {"Bfloat16", with(llama, [](WantedPlan& r) { r.pipeline = 2, r.precision = Precision::bf16; })},
      {"Offloaded", with(gpt, [](WantedPlan& r) { r.offload_optimizer = true; })},
      {"OffloadedZero3", with(llama,
                              [](WantedPlan& r) {
                                r.data = 2, r.zero = 3, r.offload_optimizer = true;
                                r.overlap_gradient_reduce = r.overlap_parameter_gather = true;
                              })},
      {"OffloadedTensorPipeline", with(llama,
                                       [](WantedPlan& r) {
                                         r.tensor = r.pipeline = r.chunks = 2, r.schedule = "interleaved",
                                         r.offload_optimizer = true;
                                         r.precision = Precision::bf16;
                                       })},
      {"OffloadedExperts",
       with(mixtral,
            [](WantedPlan& r) { r.data = 2, r.expert = 2, r.zero = 1, r.offload_optimizer = true; })},
      {"NormsOnBothSides", with(test::little_gemma(2), [](WantedPlan&) {})},
      {"WindowsInARing", with(test::little_gemma(2), [](WantedPlan& r) { r.context = 2; })},
      {"NormsOverAllHeads", with(test::little_olmo(2), [](WantedPlan& r) { r.tensor = 2; })},
      {"SinksAndBiases", with(test::little_oss(2), [](WantedPlan&) {})},
      {"Latents", with(test::little_deepseek(2), [](WantedPlan& r) { r.tensor = 2; })},
      {"LatentsInBfloat16",
       with(test::little_deepseek(2), [](WantedPlan& r) { r.precision = Precision::bf16; })},
      {"NextTokens", with(test::little_predicting(2), [](WantedPlan& r) { r.tensor = 2; })},
      {"NextTokensInAPipeline", with(test::little_predicting(2),
                                     [](WantedPlan& r) {
                                       r.pipeline = 2, r.data = 2, r.zero = 2;
                                       r.precision = Precision::bf16;
                                     })},
      {"SideBySide", with(test::little_parallel(2), [](WantedPlan&) {})},
      {"GatedDelta", with(test::little_next(4), [](WantedPlan& r) { r.tensor = 2; })},
      {"GatedDeltaInBf16", with(test::little_next(4), [](WantedPlan& r) { r.precision = Precision::bf16; })},
      {"Fp8", with(gpt, [](WantedPlan& r) { r.precision = Precision::fp8; })},
      {"Fp8Recomputed", with(llama,
                             [](WantedPlan& r) {
                               r.precision = Precision::fp8, r.recompute = Recompute::full;
                               r.data = 2, r.zero = 1;
                             })},
      {"Fp8SplitBackward",
       with(llama,
            [](WantedPlan& r) { r.precision = Precision::fp8, r.pipeline = 2, r.schedule = "zb-h1"; })},
      {"Fp8TensorParallel",
       with(gpt,
            [](WantedPlan& r) { r.precision = Precision::fp8, r.tensor = 2, r.sequence_parallel = true; })},
      {"Fp8TensorParallelBeside",
       with(llama,
            [](WantedPlan& r) { r.precision = Precision::fp8, r.tensor = 2, r.overlap_tensor = true; })},
  };
}

class CudaTraining : public testing::TestWithParam<Case> {};

TEST_P(CudaTraining, GivesTheCpusLossCurve) {
  std::string reason;
  const auto backend = backend_under_test(reason);
  if (!backend) GTEST_SKIP() << reason;
  const WantedPlan& request = GetParam().request;
  constexpr int64_t kSteps = 2;
  const OwnAttention own;
  const Curve cpu = loss_curve(request, nullptr, kSteps), gpu = loss_curve(request, backend.get(), kSteps);
  // In 16 bits and fewer both round what they compute, from sums in other orders.
  const double tolerance = request.precision == Precision::fp32 ? 1e-5 : 2e-2;
  ASSERT_EQ(gpu.loss.size(), size_t(kSteps));
  for (size_t i = 0; i < size_t(kSteps); ++i) {
    EXPECT_NEAR(gpu.loss[i], cpu.loss[i], tolerance * cpu.loss[i]) << "step " << i + 1;
    EXPECT_NEAR(gpu.norm[i], cpu.norm[i], 10 * tolerance * cpu.norm[i]) << "step " << i + 1;
  }
  EXPECT_EQ(gpu.peak_bytes, cpu.peak_bytes);
}

INSTANTIATE_TEST_SUITE_P(Layouts, CudaTraining, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

// With ZeRO 3 weights are narrowed for each use; with ZeRO 1 they are kept in 8 bits until a step changes
// them.
TEST(CudaTrainingIn8Bits, WeightsThatAreKeptIn8BitsGiveTheSameBits) {
  std::string reason;
  const auto backend = backend_under_test(reason);
  if (!backend) GTEST_SKIP() << reason;
  const OwnAttention own;
  WantedPlan request;
  request.model = test::little_llama(2);
  request.workload = {2, 16};  // one micro-batch for each rank
  request.precision = Precision::fp8;
  request.data = 2;
  constexpr int64_t kSteps = 4;
  request.zero = 3;
  const Curve anew = loss_curve(request, backend.get(), kSteps);
  request.zero = 1;
  const Curve kept = loss_curve(request, backend.get(), kSteps);
  EXPECT_EQ(kept.loss, anew.loss);
}

}  // namespace
}  // namespace mpt::runtime
