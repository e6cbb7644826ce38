// SPDX-License-Identifier: Apache-2.0

// What tests/support/cuda_on_cpu refuses, each rule broken once, and what the device does about it.

#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "runtime/comm/mover.h"
#include "runtime/device/cuda/memory_pool.h"
#include "runtime/device/cuda/staging.h"
#include "runtime/device/cuda/stream_device.h"
#include "runtime/device/side_stream.h"
#include "runtime/nn/stage.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/shared_memory.h"
#include "tests/support/cuda_on_cpu/streams.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

class CudaOnCpu : public testing::Test {
 protected:
  void TearDown() override {
    cuda_on_cpu::set_lost_waits(nullptr);
    cuda_on_cpu::set_lost_barriers(false);
    cuda_on_cpu::count_banks(false);
    cuda_on_cpu::set_most_shared_bytes(227 << 10);
    cuda_on_cpu::forget_failure();
  }

  // Work that never becomes ready.
  static void block(cudaStream_t stream) {
    cuda_on_cpu::Work work;
    work.name = "work that never ends";
    work.ready = [] { return false; };
    cuda_on_cpu::submit(stream->stream, std::move(work));
  }
  static void lose_waits() {
    cuda_on_cpu::set_lost_waits([](cudaStream_t) { return true; });
  }
  // What a race between streams is reported as when all have done their work; empty: there is none.
  static std::string race() {
    cuda_on_cpu::drain_gpu(0);
    return cuda_on_cpu::failure();
  }
  // Both ways; what came out, and its gradient.
  std::vector<double> attend(DataType type, const AttentionShape& s) {
    const int64_t unit = size_of(type), queries = s.tokens() * s.outputs(), rows = s.tokens() * s.row();
    const auto filled = [&](int64_t count) {
      Buffer buffer(*device_, count * unit);
      std::vector<double> values(static_cast<size_t>(count));
      for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(double(i) * 0.37);
      device_->upload(type, values.data(), count, buffer.data());
      return buffer;
    };
    const Buffer qkv = filled(rows), dout = filled(queries), out = filled(queries), dqkv = filled(rows),
                 lse(*device_, s.tokens() * s.heads * size_of(state_type_of(type)));
    device_->run(
        type, AttentionForward{.shape = s, .qkv = qkv.data(), .out = out.data(), .log_sum_exp = lse.data()});
    device_->run(type, AttentionBackward{.shape = s,
                                         .dout = dout.data(),
                                         .qkv = qkv.data(),
                                         .out = out.data(),
                                         .log_sum_exp = lse.data(),
                                         .dqkv = dqkv.data()});
    std::vector<double> results(size_t(queries + rows));
    device_->download(type, out.data(), queries, results.data());
    device_->download(type, dqkv.data(), rows, results.data() + queries);
    return results;
  }
  template <class F>
  static void in_a_thread(F&& body) {
    std::thread(body).join();
  }

  static constexpr int64_t kCount = 256, kBytes = kCount * 4;
  const std::unique_ptr<cuda::StreamDevice> device_ = cuda::make_cuda_device(0);
};

// A lane that reads what another wrote, with the wait between them and without it.
TEST_F(CudaOnCpu, FindsALaneThatDoesNotWaitForAnother) {
  if (!cuda_on_cpu::kernels_report()) GTEST_SKIP() << "a sanitizer watches the kernels";
  for (const bool lost : {false, true}) {
    Buffer x(*device_, kBytes), y(*device_, kBytes);
    const auto marks = device_->make_marks(1);
    in_a_thread([&] {
      marks->start(0);
      device_->zero(x.data(), kBytes);
      marks->end(0);
    });
    if (lost) lose_waits();
    marks->await(0);
    device_->run(DataType::float32,
                 ResidualAdd{.count = kCount, .a = x.data(), .b = x.data(), .y = y.data()});
    const std::string found = race();
    EXPECT_EQ(found.empty(), !lost) << found;
    if (!lost) continue;
    EXPECT_NE(found.find("residual_add"), std::string::npos) << found;
    EXPECT_NE(found.find("setting memory"), std::string::npos) << found;
  }
}

// Side work that reads what its poster wrote, and a poster that reads what side work wrote.
TEST_F(CudaOnCpu, FindsSideWorkThatDoesNotWait) {
  if (!cuda_on_cpu::kernels_report()) GTEST_SKIP() << "a sanitizer watches the kernels";
  for (const int lost : {0, 1, 2}) {
    SideStream side(*device_, [](const std::string&, const std::string&) {});
    Buffer x(*device_, kBytes), y(*device_, kBytes);
    device_->synchronize();
    if (lost == 1) lose_waits();
    device_->zero(x.data(), kBytes);
    const auto ticket = side.post("doubling", [&] {
      device_->run(DataType::float32,
                   ResidualAdd{.count = kCount, .a = x.data(), .b = x.data(), .y = y.data()});
    });
    if (lost == 2) {
      in_a_thread([&] { side.await(ticket); });
      lose_waits();
    }
    side.await(ticket);
    device_->zero(lost == 1 ? x.data() : y.data(), kBytes);
    EXPECT_EQ(race().empty(), lost == 0) << lost << ": " << cuda_on_cpu::failure();
    cuda_on_cpu::set_lost_waits(nullptr);
    cuda_on_cpu::forget_failure();
  }
}

// Memory that goes from one stream to another through the pool.
TEST_F(CudaOnCpu, FindsMemoryThatChangesStreamsTooEarly) {
  for (const bool lost : {false, true}) {
    in_a_thread([&] {
      const Buffer x(*device_, kBytes);
      device_->zero(x.data(), kBytes);
    });
    if (lost) lose_waits();
    const Buffer y(*device_, kBytes);
    device_->zero(y.data(), kBytes);
    EXPECT_EQ(race().empty(), !lost);
  }
}

// Experts get another number of rows each time.
TEST_F(CudaOnCpu, LargeMemoryServesWhatIsNearlyAsLarge) {
  constexpr int64_t kLarge = 2 << 20;
  void* const first = device_->allocate(kLarge);
  device_->release(first, kLarge);
  const int64_t less = kLarge - (100 << 10), much_less = kLarge / 2;
  void* const again = device_->allocate(less);
  EXPECT_EQ(again, first);
  void* const other = device_->allocate(much_less);
  EXPECT_NE(other, first);
  device_->release(again, less);
  void* const whole = device_->allocate(kLarge);
  EXPECT_EQ(whole, first) << "the block kept its size";
  device_->release(whole, kLarge);
  device_->release(other, much_less);
  void* const small = device_->allocate(512 << 10);
  device_->release(small, 512 << 10);
  void* const smaller = device_->allocate(500 << 10);
  EXPECT_NE(smaller, small) << "small sizes repeat";
  device_->release(smaller, 500 << 10);
}

// Blocks are cut from what was reserved; when it is used up, and the GPU is full, those that were given back
// are joined.
TEST_F(CudaOnCpu, ReservedMemoryIsCutAndJoined) {
  constexpr int64_t kReserve = 6 << 20, kMost = 2 << 20;
  cuda_on_cpu::limit(1, 300 << 20);
  const auto device = cuda::make_cuda_device(1);
  device->reserve(kReserve);
  std::vector<char*> blocks;
  for (int i = 0; i < 2; ++i) blocks.push_back(static_cast<char*>(device->allocate(kMost + 64)));
  EXPECT_EQ(blocks[1] - blocks[0], kMost + 256) << "cut one behind the other";
  for (char* const block : blocks) EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 256, 0u);
  auto* const outside = static_cast<char*>(device->allocate(kMost + kMost / 2));
  EXPECT_TRUE(outside < blocks[0] || outside >= blocks[0] + kReserve);
  for (char* const block : blocks) device->release(block, kMost + 64);
  auto* const joined = static_cast<char*>(device->allocate(2 * kMost));
  EXPECT_EQ(joined, blocks[0]);
  device->release(joined, 2 * kMost);
  device->release(outside, kMost + kMost / 2);
  cuda_on_cpu::limit(1, 0);
}

// A GPU that others use, too: what is left but for some is reserved.
TEST_F(CudaOnCpu, ReservesNoMoreThanIsLeft) {
  cuda_on_cpu::limit(1, 400 << 20);
  {
    const auto device = cuda::make_cuda_device(1);
    device->reserve(int64_t{1} << 40);
    EXPECT_EQ(cuda_on_cpu::fill(1).used, uint64_t{144} << 20);
    void* const block = device->allocate(64);
    EXPECT_NE(block, nullptr);
    EXPECT_EQ(cuda_on_cpu::fill(1).used, uint64_t{144} << 20) << "a block of the reserve";
    device->release(block, 64);
  }
  cuda_on_cpu::limit(1, 0);
}

TEST_F(CudaOnCpu, RunsWorkLate) {
  Buffer x(*device_, kBytes);
  const auto marks = device_->make_marks(1);
  marks->start(0);
  device_->zero(x.data(), kBytes);
  marks->end(0);
  EXPECT_THROW(marks->time_s(0), RunError) << "it is over only after someone has waited";
  marks->finish();
}

// Another stream may still be at work, such as a gathering of weights beside the next step.
TEST_F(CudaOnCpu, MarksWaitForTheirOwnStreamsOnly) {
  const auto marks = device_->make_marks(1);
  marks->begin_step();
  in_a_thread([&] { block(device_->stream()); });
  marks->start(0);
  marks->end(0);
  device_->set_watch([](double) { throw std::runtime_error("it waits for another stream"); });
  EXPECT_NO_THROW(marks->finish());
  cuda_on_cpu::forget_failure();
}

// Events belong to the GPU that was the current one.
TEST_F(CudaOnCpu, MarksOfAGpuBelongToIt) {
  const auto other = cuda::make_cuda_device(1);
  cudaSetDevice(0);
  const auto marks = other->make_marks(1);
  EXPECT_NO_THROW(marks->begin_step());
}

// A peer that died never ends the work that stands before a copy; only the watch can end the wait.
TEST_F(CudaOnCpu, CopiesToTheHostAreWatched) {
  struct Aborted : std::runtime_error {
    using std::runtime_error::runtime_error;
  };
  Buffer x(*device_, kBytes);
  device_->sum_of_squares(DataType::float32, kCount, x.data());  // loads its kernel
  device_->set_watch([](double) { throw Aborted("stopped"); });
  block(device_->stream());
  std::vector<double> values(kCount);
  EXPECT_THROW(device_->download(DataType::float32, x.data(), kCount, values.data()), Aborted);
  EXPECT_THROW(device_->sum_of_squares(DataType::float32, kCount, x.data()), Aborted);
  cuda_on_cpu::forget_failure();
}

// Lists go through pinned memory: the host does not wait for the stream.
TEST_F(CudaOnCpu, ListsDoNotWaitForTheStream) {
  Buffer table(*device_, 64 * 64 * 4), y(*device_, 32 * 64 * 4);
  const std::vector<int32_t> ids(32, 7), many(20'000, 3);
  const Buffer copy(*device_, int64_t(many.size()) * 4);
  const auto look_up = [&] {
    device_->run(
        DataType::float32,
        EmbeddingForward{.shape = {32, 64, 0, 64}, .ids = ids.data(), .table = table.data(), .y = y.data()});
  };
  look_up();  // loads its kernel
  device_->synchronize();
  device_->set_watch([](double) { throw std::runtime_error("it waits"); });
  block(device_->stream());
  EXPECT_NO_THROW(look_up());
  EXPECT_NO_THROW(device_->copy(copy.data(), many.data(), int64_t(many.size()) * 4));
  cuda_on_cpu::forget_failure();
}

// In as many pieces as it takes, through slots that come round again.
TEST_F(CudaOnCpu, ListsMayBeLongerThanAllSlots) {
  cuda::Staging staging(16);
  std::vector<char> list(1000), got(list.size());
  for (size_t i = 0; i < list.size(); ++i) list[i] = char(i % 101);
  const Buffer to(*device_, int64_t(list.size()));
  int waits = 0;
  staging.send(list.data(), int64_t(list.size()), to.data(), device_->stream(), [&](cudaEvent_t event) {
    ++waits;
    device_->wait_for(event);
  });
  EXPECT_EQ(waits, 63) << "once for each piece";
  device_->copy(got.data(), to.data(), int64_t(got.size()));
  EXPECT_EQ(got, list);
}

// As CUDA's documents allow them to.
TEST_F(CudaOnCpu, CallsAboutMemoryWaitForAllWork) {
  const cudaStream_t stream = device_->stream();
  const auto waits = [&](auto&& call) {
    bool done = false;
    cuda_on_cpu::Work late;
    late.name = "late work";
    late.run = [&done] {
      done = true;
      return cudaSuccess;
    };
    cuda_on_cpu::submit(stream->stream, std::move(late));
    EXPECT_EQ(call(), cudaSuccess);
    const bool waited = done;
    cudaStreamSynchronize(stream);
    return waited;
  };
  void *device = nullptr, *pinned = nullptr;
  EXPECT_TRUE(waits([&] { return cudaMalloc(&device, 64); }));
  EXPECT_TRUE(waits([&] { return cudaHostAlloc(&pinned, 64, cudaHostAllocDefault); }));
  EXPECT_TRUE(waits([&] { return cudaFree(device); }));
  EXPECT_TRUE(waits([&] { return cudaFreeHost(pinned); }));
}

// Blocks of a reserve are split and joined whatever their sizes, the smallest gap first.
TEST_F(CudaOnCpu, GapsOfTheReserveServeAnySize) {
  constexpr int64_t kUnit = 1 << 20;
  const auto device = cuda::make_cuda_device(1);
  device->reserve(10 * kUnit);
  const uint64_t used = cuda_on_cpu::fill(1).used;
  const auto take = [&](int64_t units) { return static_cast<char*>(device->allocate(units * kUnit)); };
  char* const four = take(4);
  char* const one = take(1);
  char* const three = take(3);
  char* const last = take(2);
  device->release(four, 4 * kUnit);
  device->release(three, 3 * kUnit);
  EXPECT_EQ(take(2), three) << "the smaller of two gaps";
  EXPECT_EQ(take(3), four);
  device->release(four, 3 * kUnit);
  device->release(one, kUnit);
  EXPECT_EQ(take(5), four) << "joined";
  EXPECT_EQ(cuda_on_cpu::fill(1).used, used) << "nothing beyond the reserve";
  device->release(four, 5 * kUnit);
  device->release(three, 2 * kUnit);
  device->release(last, 2 * kUnit);
  EXPECT_EQ(take(10), four) << "as at the beginning";
  device->release(four, 10 * kUnit);
}

// Micro-batches follow each other on the GPU without a word to the host: their loss is read after the last.
TEST_F(CudaOnCpu, MicroBatchesDoNotWaitForTheGpu) {
  const ModelSpec model = test::little_gpt(2);
  constexpr int64_t kSequence = 8;
  Layout layout;
  layout.layers_per_stage = {2};
  const auto group = make_single_communicator(*device_);
  Stage stage({model, layout, kSequence, DataType::bfloat16, 1}, 0, {0, 2, true, true}, *device_,
              {{group.get(), group.get(), group.get()}, {}});
  std::vector<int32_t> tokens(kSequence, 3), targets(kSequence, 5);
  const auto run = [&](int micro_batches) {
    for (int m = 0; m < micro_batches; ++m) {
      stage.forward(m, tokens.data(), targets.data(), nullptr, nullptr);
      stage.backward(m, nullptr, nullptr);
    }
  };
  run(1);  // lists that are kept go to the GPU once
  const double loss = stage.loss_sum();
  EXPECT_GT(loss, 0.0);
  device_->set_watch([](double) { throw std::runtime_error("the host waits"); });
  bool held = true;
  cuda_on_cpu::Work work;
  work.name = "work that ends later";
  work.ready = [&held] { return !held; };
  cuda_on_cpu::submit(device_->stream()->stream, std::move(work));
  EXPECT_NO_THROW(run(2));
  held = false;
  device_->set_watch(nullptr);
  EXPECT_NEAR(stage.loss_sum(), 3 * loss, 1e-9) << "losses add up";
}

TEST_F(CudaOnCpu, RefusesMemoryOfTheHostInKernels) {
  const std::vector<float> pageable(kCount);
  Buffer y(*device_, kBytes);
  EXPECT_THROW(
      device_->run(DataType::float32,
                   ResidualAdd{.count = kCount, .a = pageable.data(), .b = pageable.data(), .y = y.data()}),
      RunError);
  // Inside a struct it shows when the kernel reads it.
  if (!cuda_on_cpu::kernels_report()) return;
  EXPECT_NO_THROW(
      device_->reduce(DataType::float32, ReduceOperation::sum, {pageable.data()}, 0, kCount, y.data()));
  EXPECT_NE(race().find("pageable memory of the host"), std::string::npos);
}

TEST_F(CudaOnCpu, CrashesWhereTheHostReadsDeviceMemory) {
  Buffer x(*device_, kBytes);
  EXPECT_DEATH(
      {
        volatile char byte = *static_cast<char*>(x.data());
        (void)byte;
      },
      "");
}

void diverging_kernel(int lanes) {
  if (int(threadIdx.x) >= lanes) return;
  __syncwarp();
}
void agreeing_kernel(int lanes) {
  if (int(threadIdx.x) < lanes) __syncwarp((1u << lanes) - 1);
}

TEST_F(CudaOnCpu, FindsLanesThatDoNotArrive) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.stream = device_->stream();
  EXPECT_EQ(cudaLaunchKernelEx(&config, agreeing_kernel, 5), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(config.stream), cudaSuccess);
  EXPECT_EQ(cudaLaunchKernelEx(&config, diverging_kernel, 5), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(config.stream), cudaErrorLaunchFailure);
  EXPECT_NE(cuda_on_cpu::failure().find("diverging_kernel: a kernel hangs"), std::string::npos);
}

TEST_F(CudaOnCpu, RefusesLaunchesThatNoGpuAllows) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.dynamicSmemBytes = 64 << 10;  // more than 48 KB must be asked for
  config.stream = device_->stream();
  EXPECT_EQ(cudaLaunchKernelEx(&config, agreeing_kernel, 0), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(config.stream), cudaErrorLaunchFailure);
}

// Unpadded rows of 64 columns would have equal columns in one bank: they go round the banks twice.
TEST_F(CudaOnCpu, LanesOfAttentionReadDifferentBanks) {
  if (!cuda_on_cpu::kernels_report()) GTEST_SKIP() << "a sanitizer watches the kernels";
  cuda_on_cpu::count_banks(true);
  cuda_on_cpu::reset_traffic();
  attend(DataType::float32, {1, 40, 2, 1, 64});
  for (const char* kernel :
       {"attention_forward_kernel", "attention_query_gradient_kernel", "attention_key_gradient_kernel"}) {
    const cuda_on_cpu::Traffic traffic = cuda_on_cpu::traffic()[kernel];
    EXPECT_GT(traffic.least_bank_cycles, 1000) << kernel;
    EXPECT_LE(double(traffic.bank_cycles), 1.25 * double(traffic.least_bank_cycles)) << kernel;
  }
}

// Compute capabilities 8.0 and 8.9 against 9.0. Sizes of heads with a scalar kernel in the zoo.
TEST_F(CudaOnCpu, AttentionFitsIntoTheSharedMemoryOfEachGpu) {
  for (const AttentionShape& s : {AttentionShape{1, 40, 2, 1, 256, 0, 16}, {1, 40, 1, 1, 192, 128}}) {
    for (const DataType type : {DataType::float32, DataType::float64, DataType::bfloat16}) {
      const std::vector<double> whole = attend(type, s);
      for (const int kibibytes : {163, 99}) {
        cuda_on_cpu::set_most_shared_bytes(kibibytes << 10);
        const std::vector<double> results = attend(type, s);
        // Sums over tiles of other sizes; in 16 bits the last bit may differ.
        for (size_t i = 0; i < whole.size(); ++i)
          ASSERT_NEAR(results[i], whole[i],
                      type == DataType::bfloat16 ? 5e-3 + 0.01 * std::fabs(whole[i]) : 1e-3)
              << kibibytes << " KiB, element " << i;
      }
      cuda_on_cpu::set_most_shared_bytes(227 << 10);
    }
  }
}

TEST_F(CudaOnCpu, FindsThreadsOfABlockThatDoNotWait) {
  if (!cuda_on_cpu::kernels_report()) GTEST_SKIP() << "a sanitizer watches the kernels";
  for (const int64_t head_dim : {int64_t{16}, int64_t{64}}) {  // scalar, and on tensor cores
    for (const bool lost : {false, true}) {
      cuda_on_cpu::set_lost_barriers(lost);
      try {
        attend(DataType::bfloat16, {1, 40, 2, 1, head_dim});
      } catch (const RunError&) {
      }
      EXPECT_EQ(race().find("without a barrier between them") != std::string::npos, lost) << race();
      cuda_on_cpu::forget_failure();
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
