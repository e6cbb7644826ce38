// SPDX-License-Identifier: Apache-2.0

// What a GPU's driver sees of a rank's steps at full size: context, NCCL, workspaces and the pool, on the
// H100 of 79.65 GiB that tests/support/cuda_on_cpu stands for. Tensors have addresses only, and nothing is
// computed.

#include <gtest/gtest.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "core/gpu_memory.h"
#include "models/zoo.h"
#include "planner/api.h"
#include "runtime/device/cuda/cublas_product.h"
#include "runtime/device/cuda/memory_pool.h"
#include "runtime/train/rank_worker.h"
#include "tests/support/counting_device.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"
#include "tests/support/make_dataset.h"
#include "tests/support/make_plan.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kSequence = 8192;

// The pool of a GPU, used from one stream.
class PooledMemory final : public test::CountedMemory {
 public:
  PooledMemory() {
    cudaSetDevice(0);
    cudaStreamCreateWithFlags(&stream_, 0);
    cudaMalloc(&workspace_, cuda::kWorkspaceBytes);
  }
  ~PooledMemory() override {
    cudaFree(workspace_);
    cudaStreamDestroy(stream_);
  }
  void reserve(int64_t bytes) override {
    used_before_reserve = cuda_on_cpu::fill(0).used;
    pool_.reserve(bytes, 256 << 20);
    reserved = int64_t(cuda_on_cpu::fill(0).used - used_before_reserve);
  }
  void* allocate(int64_t bytes) override {
    in_use_ += rounded_bytes(bytes);
    most = std::max(most, in_use_);
    return pool_.allocate(cuda::MemoryUse::tensors, bytes, stream_);
  }
  void release(void* data, int64_t bytes) override {
    in_use_ -= rounded_bytes(bytes);
    pool_.release(cuda::MemoryUse::tensors, data, bytes, stream_);
  }
  void call(int64_t bytes) override {
    void* const room = pool_.allocate(cuda::MemoryUse::scratch, bytes, stream_);
    pool_.release(cuda::MemoryUse::scratch, room, bytes, stream_);
  }

  uint64_t used_before_reserve = 0;
  int64_t reserved = 0, most = 0;

 private:
  cudaStream_t stream_ = nullptr;
  void* workspace_ = nullptr;
  cuda::MemoryPool pool_;
  int64_t in_use_ = 0;
};

// A group of ranks that are not there; its buffers are.
class AbsentPeers final : public Communicator {
 public:
  AbsentPeers(int rank, int size, bool through_nccl) : rank_(rank), size_(size) {
    if (!through_nccl || size == 1) return;
    EXPECT_EQ(cudaMalloc(&buffers_, kMostChannels * nccl_on_cpu::kChannelBytes), cudaSuccess);
  }
  AbsentPeers(const AbsentPeers&) = delete;
  ~AbsentPeers() override { cudaFree(buffers_); }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce(void*, int64_t, DataType, ReduceOperation) override {}
  void all_gather(const void*, void*, int64_t, DataType) override {}
  void reduce_scatter(const void*, void*, int64_t, DataType) override {}
  void broadcast(void*, int64_t, int) override {}
  void send(const void*, int64_t, int) override {}
  void receive(void*, int64_t, int) override {}
  void send_receive(const void*, int, void*, int, int64_t) override {}
  void all_to_all(const void*, std::span<const int64_t>, void*, std::span<const int64_t>) override {}
  void barrier() override {}

 private:
  const int rank_, size_;
  void* buffers_ = nullptr;
};

class AbsentWorld final : public World {
 public:
  explicit AbsentWorld(bool through_nccl) : through_nccl_(through_nccl) {}
  std::unique_ptr<Communicator> communicator(int rank, const std::vector<int>& members,
                                             const std::string&) override {
    if (members.size() > 1) ++made;
    const auto at = std::find(members.begin(), members.end(), rank) - members.begin();
    return std::make_unique<AbsentPeers>(int(at), int(members.size()), through_nccl_);
  }
  void abort(const std::string&) override {}
  bool aborted() const override { return false; }
  std::vector<int> local_ranks() const override { return {0}; }

  int made = 0;

 private:
  const bool through_nccl_;
};

struct Walked {
  int communicators = 0;
  int64_t most_tensors = 0, reserved = 0;
  uint64_t before_reserve = 0, after_first_step = 0, at_end = 0;  // that the driver has given out
};

// Three steps of one rank, in the program's order. `further` communicators are there before.
Walked walk(const Plan& plan, int rank, int further = 0) {
  const std::string file = testing::TempDir() + "/room-" + std::to_string(getpid()) + ".txt";
  write_file_atomically(file, std::string(20'000, 'x'));
  const Dataset data = test::make_dataset(file, plan, 1);
  PooledMemory memory;
  test::KernelCounts counts;
  const auto device = test::make_counting_device(counts, &memory);
  AbsentWorld control(false), nccl(true);
  std::vector<std::unique_ptr<Communicator>> others;
  for (int i = 0; i < further; ++i) others.push_back(std::make_unique<AbsentPeers>(0, 2, true));
  const StepProgram program = program_of(plan);
  const TrainOptions options;
  RankWorker worker(plan, program, {rank, *device, control, nccl, nullptr, 0, false}, options,
                    DataType::bfloat16);
  Walked walked{nccl.made, 0, memory.reserved, memory.used_before_reserve, 0, 0};
  for (int step = 0; step < 3; ++step) {
    worker.begin_step(data);
    for (InstructionId id = 0; id < program.size(); ++id) {
      if (program.lane_on(id, worker.pipeline_rank())) worker.run(id);
    }
    worker.end_step();
    if (step == 0) walked.after_first_step = cuda_on_cpu::fill(0).used;
  }
  walked.at_end = cuda_on_cpu::fill(0).used;
  walked.most_tensors = memory.most;
  return walked;
}

// Llama 3 8B on eight H100, as mpt-plan chose before it knew of NCCL: 77.0 GiB of tensors.
Plan first_plan() {
  test::WantedPlan request{models::load_model("llama3-8b"), {64, kSequence}};
  request.pipeline = 2;
  request.data = 4;
  request.chunks = 7;
  request.schedule = "interleaved";
  request.zero = 1;
  request.precision = Precision::bf16;
  request.vocabulary_multiple = 128;
  request.layers_per_stage = {1, 1, 1, 1, 3, 3, 3, 3, 3, 3, 3, 3, 3, 1};
  return test::make_plan(request);
}

class GpuRoom : public testing::Test {
 protected:
  void TearDown() override { cuda_on_cpu::forget_failure(); }
};

TEST_F(GpuRoom, ThePlanOfEightGpusFits) {
  PlanRequest request;
  request.model.name = "llama3-8b";
  request.cluster.name = "dgx-h100:1";
  request.framework = "mpt";
  request.sequence = kSequence;
  request.global_batch = 64;
  const Plan plan = planner::plan(request);
  const std::vector<int64_t> peaks = peak_bytes(program_of(plan));
  const RankGrid grid(plan.layout);
  for (int64_t p = 0; p < plan.layout.pipeline; ++p) {
    const Walked walked = walk(plan, int(grid.rank({0, 0, p, 0})));
    // Rooms that a device of kernels needs are not asked for here.
    EXPECT_LE(walked.most_tensors, peaks[size_t(p)]);
    EXPECT_GT(double(walked.most_tensors), 0.99 * double(peaks[size_t(p)]));
    EXPECT_EQ(walked.reserved / 256, pool_bytes(peaks[size_t(p)]) / 256) << "NCCL left room for it";
    EXPECT_GT(walked.before_reserve, 0u) << "NCCL came first";
    EXPECT_EQ(walked.after_first_step, walked.before_reserve + uint64_t(walked.reserved))
        << "nothing but the reserve";
    EXPECT_EQ(walked.at_end, walked.after_first_step);
    EXPECT_LT(walked.at_end + cuda_on_cpu::kContextBytes, cuda_on_cpu::kGpuBytes);
  }
}

TEST_F(GpuRoom, TheFirstPlanHasFiveCommunicators) { EXPECT_EQ(walk(first_plan(), 0).communicators, 5); }

// One for each stage and use, 19 in all.
TEST_F(GpuRoom, TheFirstPlanDidNotFitWithACommunicatorForEachStage) {
  try {
    walk(first_plan(), 0, 19 - 5);
    FAIL() << "it fits";
  } catch (const RunError& error) {
    EXPECT_NE(std::string(error.what()).find("out of GPU memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace mpt::runtime
