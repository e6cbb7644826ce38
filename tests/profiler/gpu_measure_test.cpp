// SPDX-License-Identifier: Apache-2.0

// What mpt-profile measures on a GPU, over the GPU that tests/support/cuda_on_cpu stands in for.

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <set>

#include "profiler/measure/compute.h"
#include "profiler/measure/operator_runner.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/gpu_under_test.h"
#include "tests/support/make_plan.h"
#include "tests/support/shared_gpu.h"

namespace mpt::profiler {
namespace {

class GpuMeasure : public testing::Test {
 protected:
  void SetUp() override {
    std::string reason;
    backend_ = runtime::backend_under_test(reason);
    ASSERT_TRUE(backend_) << reason;
    request_.model = test::little_gpt(1);
    request_.model.vocab = 300;
    request_.sequence = 8;
    request_.micro_batches = {1};
    request_.tensors = {1, 2};
    request_.rule = {.warm_up = 0, .least_samples = 1, .budget_s = 0.0, .least_sample_s = 0.0};
    request_.target = {backend_.get(), runtime::DataType::bfloat16};
  }

  std::unique_ptr<runtime::Backend> backend_;
  ComputeRequest request_;
};

// Plans for GPUs pad the vocabulary: products and losses of other widths would be another's time.
TEST_F(GpuMeasure, PadsTheVocabularyAsPlansDo) {
  std::set<int64_t> products, losses;
  for (const OperatorTiming& timing : measure_operators(request_, [] {})) {
    if (timing.shape.kind == models::OperatorKind::linear) products.insert(timing.shape.columns);
    if (timing.shape.kind == models::OperatorKind::cross_entropy) losses.insert(timing.shape.columns);
  }
  EXPECT_EQ(losses, (std::set<int64_t>{256, 384})) << "of two ranks and of one";
  EXPECT_TRUE(products.contains(384));
  EXPECT_FALSE(products.contains(300));
}

// Products are timed with the algorithms that training finds the fastest, those of weight gradients, too.
TEST_F(GpuMeasure, ProductsUseTheirFastestAlgorithms) {
  struct TimedGpu : runtime::SharedGpu {
    std::unique_ptr<runtime::Device> make_device(int, const runtime::DeviceOptions& options) override {
      return runtime::cuda::make_cuda_device(0, {.times_products = options.times_products});
    }
  } gpu;
  cuda_on_cpu::set_fastest_algorithm(2);
  models::OperatorShape shape;
  shape.kind = models::OperatorKind::linear;
  shape.rows = shape.columns = shape.inner = 16;
  OperatorRunner runner(request_.model, shape, {&gpu, runtime::DataType::bfloat16});
  cuda_on_cpu::take_products();
  for (const Phase phase : runner.phases()) {
    runner.run(phase);
    runner.run(phase);
    const auto launched = cuda_on_cpu::take_products();
    ASSERT_FALSE(launched.empty());
    EXPECT_EQ(launched.back().algorithm, 2);
  }
  cuda_on_cpu::set_fastest_algorithm(-1);
}

// Between events: what the host does meanwhile does not count, and nothing is read too early.
TEST_F(GpuMeasure, TimesEveryPhaseOfEveryPiece) {
  request_.tensors = {1};
  std::set<std::pair<Piece, Phase>> timed;
  for (const PieceTiming& timing : measure_pieces(request_, [] {})) {
    EXPECT_GT(timing.seconds, 0.0);
    timed.insert({timing.piece, timing.phase});
  }
  for (const Piece piece : {Piece::embedding, Piece::layer, Piece::head}) {
    EXPECT_TRUE(timed.contains({piece, Phase::forward}));
    EXPECT_TRUE(timed.contains({piece, Phase::backward}));
  }
  EXPECT_TRUE(timed.contains({Piece::layer, Phase::input_gradient}));
  EXPECT_TRUE(timed.contains({Piece::layer, Phase::weight_gradient}));
}

// Sizes follow the speed and memory of the GPU.
TEST_F(GpuMeasure, MeasuresTheRatesOfASmallGpu) {
  struct SmallGpu : runtime::SharedGpu {
    int64_t memory_bytes() const override { return int64_t{128} << 20; }
  } gpu;
  cuda_on_cpu::limit(0, uint64_t(gpu.memory_bytes()));
  int measured = 0;
  Profile rates;
  measure_rates(
      request_.rule, {&gpu, runtime::DataType::bfloat16}, [&] { ++measured; }, rates);
  cuda_on_cpu::limit(0, 0);
  EXPECT_EQ(measured, 5);
  for (const double rate :
       {rates.memory_bandwidth_bytes_per_s, rates.matmul_flop_per_s, rates.optimizer_s_per_parameter,
        rates.gradient_norm_s_per_parameter, rates.dispatch_s})
    EXPECT_GT(rate, 0.0);
}

}  // namespace
}  // namespace mpt::profiler
