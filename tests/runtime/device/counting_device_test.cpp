// SPDX-License-Identifier: Apache-2.0

// What a step is counted to cost is what the kernels do: the same launches, and the bytes that they touch on
// the GPU that tests/support/cuda_on_cpu stands in for.

#include <gtest/gtest.h>

#include "runtime/comm/mover.h"
#include "runtime/device/cuda/stream_device.h"
#include "runtime/nn/stage.h"
#include "runtime/train/optimizer.h"
#include "tests/support/counting_device.h"
#include "tests/support/cuda_on_cpu/races.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

// Two micro-batches and what ends a step.
void take_step(const ModelSpec& model, Precision precision, Device& device, Mover& mover,
               const std::function<void()>& begin) {
  constexpr int64_t kSequence = 16, kBatch = 2;
  Layout layout;
  layout.micro_batch = kBatch;
  layout.precision = precision;
  layout.layers_per_stage = {model.layers.count()};
  const auto group = make_single_communicator(mover);
  Stage stage({model, layout, kSequence, DataType::bfloat16, 1}, 0, {0, model.layers.count(), true, true},
              device, {{group.get(), group.get(), group.get()}, {}});
  const ReplicaGroups replicas{group.get(), group.get()};
  Optimizer optimizer(stage.parameters(), device, replicas, replicas, *group, {});
  std::vector<int32_t> tokens, targets;
  for (int32_t t = 0; t < kSequence * kBatch; ++t) {
    tokens.push_back(7 * t % 256);  // no word twice
    targets.push_back(5 * t % 256);
  }
  device.synchronize();
  begin();
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
    stage.forward(micro_batch, tokens.data(), targets.data(), nullptr, nullptr);
    stage.backward(micro_batch, nullptr, nullptr);
  }
  optimizer.squared_norm();
  optimizer.step({1e-3});
  device.synchronize();
}

// In its place the fused one is counted.
bool is_own_attention(const std::string& kernel) {
  return kernel.find("attention") != std::string::npos || kernel == "forward_kernel" ||
         kernel == "query_gradient_kernel" || kernel == "key_gradient_kernel";
}

void compare_step(const ModelSpec& model, Precision precision = Precision::bf16) {
  if (!cuda_on_cpu::kernels_report()) GTEST_SKIP() << "a sanitizer watches the kernels";
  test::KernelCounts counts;
  const auto counting = test::make_counting_device(counts);
  take_step(model, precision, *counting, host_mover(), [&] { counts.clear(); });
  const auto gpu = cuda::make_cuda_device(0);
  take_step(model, precision, *gpu, *gpu, cuda_on_cpu::reset_traffic);
  for (const auto& [kernel, done] : cuda_on_cpu::traffic()) {
    if (is_own_attention(kernel)) continue;
    const auto found = counts.find(kernel);
    ASSERT_NE(found, counts.end()) << kernel << " is not counted";
    test::KernelCount count = found->second;
    // The loss reads its row twice, the second time in other words than those of memory that are new to it.
    if (kernel == "loss_of_all_kernel") count.read_bytes /= 2;
    EXPECT_EQ(count.launches, done.launches) << kernel;
    EXPECT_NEAR(double(count.read_bytes), double(done.read_bytes), 0.02 * double(done.read_bytes) + 64)
        << kernel;
    EXPECT_NEAR(double(count.written_bytes), double(done.written_bytes),
                0.02 * double(done.written_bytes) + 64)
        << kernel;
  }
  for (const auto& [kernel, count] : counts) {
    if (!kernel.ends_with("_kernel")) continue;
    EXPECT_TRUE(cuda_on_cpu::traffic().contains(kernel)) << kernel << " is counted, and never launched";
  }
}

TEST(CountingDevice, CountsWhatGptsKernelsDo) { compare_step(test::little_gpt(2)); }
TEST(CountingDevice, CountsWhatLlamasKernelsDo) { compare_step(test::little_llama(2)); }
TEST(CountingDevice, CountsWhatKernelsDoIn8Bits) { compare_step(test::little_llama(2), Precision::fp8); }

}  // namespace
}  // namespace mpt::runtime
