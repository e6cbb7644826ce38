// SPDX-License-Identifier: Apache-2.0

// The rules that tests/support/nccl_on_cpu enforces, each broken once.

#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <string>
#include <vector>

#include "runtime/device/cuda/staging.h"
#include "tests/support/cuda_on_cpu/memory.h"
#include "tests/support/cuda_on_cpu/streams.h"

namespace {

constexpr int kRanks = 2;

// Two ranks with a GPU each, both driven by the test's thread, each with two streams.
class NcclOnCpu : public testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < kRanks; ++rank) {
      cudaSetDevice(rank);
      for (cudaStream_t& stream : streams_[size_t(rank)]) cudaStreamCreateWithFlags(&stream, 0);
      void* data = nullptr;
      cudaMalloc(&data, kBytes);
      data_[size_t(rank)] = static_cast<char*>(data);
    }
  }
  void TearDown() override {
    cuda_on_cpu::forget_failure();
    const char* first = "";
    nccl_on_cpu::take_mistakes(&first);
    for (int rank = 0; rank < kRanks; ++rank) {
      cudaSetDevice(rank);
      cudaFree(data_[size_t(rank)]);
      for (const cudaStream_t stream : streams_[size_t(rank)]) cudaStreamDestroy(stream);
    }
  }

  std::array<ncclComm_t, kRanks> communicators(ncclConfig_t config = {}) {
    ncclUniqueId id{};
    ncclGetUniqueId(&id);
    std::array<ncclComm_t, kRanks> made{};
    for (int rank = 0; rank < kRanks; ++rank) {
      cudaSetDevice(rank);
      ncclCommInitRankConfig(&made[size_t(rank)], kRanks, id, rank, &config);
    }
    if (config.blocking != 0 && connects_) connect(made);
    return made;
  }
  // The first operation waits for all work of the GPU.
  void connect(const std::array<ncclComm_t, kRanks>& comms) {
    for (int rank = 0; rank < kRanks; ++rank) {
      cudaSetDevice(rank);
      ncclAllReduce(data_[size_t(rank)], data_[size_t(rank)], 1, ncclFloat32, ncclSum, comms[size_t(rank)],
                    at(rank, 0));
    }
    for (int rank = 0; rank < kRanks; ++rank) cudaStreamSynchronize(at(rank, 0));
  }
  ncclResult_t send(ncclComm_t comm, int rank, int stream) {
    cudaSetDevice(rank);
    return ncclSend(data_[size_t(rank)] + 64 * stream, 64, ncclInt8, 1 - rank, comm, at(rank, stream));
  }
  ncclResult_t receive(ncclComm_t comm, int rank, int stream) {
    cudaSetDevice(rank);
    return ncclRecv(data_[size_t(rank)] + 64 * stream, 64, ncclInt8, 1 - rank, comm, at(rank, stream));
  }
  std::string race_at_end(int end, bool waits);
  cudaStream_t at(int rank, int stream) { return streams_[size_t(rank)][size_t(stream)]; }

  static constexpr size_t kBytes = 1024;
  bool connects_ = true;
  std::array<std::array<cudaStream_t, 2>, kRanks> streams_{};
  std::array<char*, kRanks> data_{};
};

TEST_F(NcclOnCpu, MovesTheData) {
  const auto comms = communicators();
  const std::string text = "what rank 0 has";
  cudaSetDevice(0);
  cudaMemcpyAsync(data_[0], text.data(), text.size(), cudaMemcpyDefault, at(0, 0));
  EXPECT_EQ(send(comms[0], 0, 0), ncclSuccess);
  EXPECT_EQ(receive(comms[1], 1, 0), ncclSuccess);
  std::string got(text.size(), ' ');
  EXPECT_EQ(cudaMemcpyAsync(got.data(), data_[1], got.size(), cudaMemcpyDefault, at(1, 0)), cudaSuccess);
  EXPECT_EQ(got, text);
}

// What a device's thread does while another waits for a peer: no list of whatever length waits for all work.
TEST_F(NcclOnCpu, ListsAreSentBesideAReceiveThatWaits) {
  const auto comms = communicators();
  cudaSetDevice(0);
  mpt::runtime::cuda::Staging staging;
  void* to = nullptr;
  constexpr size_t kUsual = 60'000, kLong = 70'000;
  ASSERT_EQ(cudaMalloc(&to, kLong), cudaSuccess);
  const auto wait = [](cudaEvent_t event) {
    while (cudaEventQuery(event) == cudaErrorNotReady) {
    }
  };
  std::vector<char> list(kLong, 'a');
  for (int i = 0; i < 8; ++i) staging.send(list.data(), kUsual, to, at(0, 1), wait);
  EXPECT_EQ(receive(comms[0], 0, 0), ncclSuccess);
  list.back() = 'z';
  EXPECT_NO_THROW(staging.send(list.data(), kLong, to, at(0, 1), wait));
  EXPECT_EQ(send(comms[1], 1, 0), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(at(0, 0)), cudaSuccess) << cuda_on_cpu::failure();
  cudaSetDevice(0);
  std::vector<char> got(kLong);
  EXPECT_EQ(cudaMemcpyAsync(got.data(), to, kLong, cudaMemcpyDefault, at(0, 1)), cudaSuccess);
  EXPECT_EQ(got, list);
  cudaFree(to);
}

// The buffers of its channels come with it.
TEST_F(NcclOnCpu, TheFirstOperationTakesMemoryAndWaitsForTheGpu) {
  connects_ = false;
  ncclConfig_t config;
  config.maxCTAs = 14;
  const auto comms = communicators(config);
  const uint64_t before = cuda_on_cpu::fill(0).used;
  bool done = false;
  cuda_on_cpu::Work late;
  late.name = "late work";
  late.run = [&done] {
    done = true;
    return cudaSuccess;
  };
  cudaSetDevice(0);
  cuda_on_cpu::submit(at(0, 1)->stream, std::move(late));
  EXPECT_EQ(send(comms[0], 0, 0), ncclSuccess);
  EXPECT_TRUE(done);
  EXPECT_NEAR(double(cuda_on_cpu::fill(0).used - before), 14 * 9.1875 * (1 << 20), 256);
  EXPECT_EQ(receive(comms[1], 1, 0), ncclSuccess);
  EXPECT_EQ(cudaStreamSynchronize(at(1, 0)), cudaSuccess);
  for (int rank = 0; rank < kRanks; ++rank) ncclCommDestroy(comms[size_t(rank)]);
  EXPECT_EQ(cuda_on_cpu::fill(0).used, before);
}

TEST_F(NcclOnCpu, RefusesACallWhileAnotherIsInProgress) {
  ncclConfig_t config;
  config.blocking = 0;
  const auto comms = communicators(config);
  ncclResult_t state = ncclInProgress;
  for (int i = 0; i < 5; ++i) ncclCommGetAsyncError(comms[0], &state);
  ASSERT_EQ(state, ncclSuccess);
  EXPECT_EQ(send(comms[0], 0, 0), ncclInProgress);
  EXPECT_EQ(receive(comms[0], 0, 1), ncclInvalidArgument);
  ncclCommGetAsyncError(comms[0], &state);
  EXPECT_EQ(state, ncclInvalidArgument);
}

// Each receives first, in streams that do not wait for each other.
TEST_F(NcclOnCpu, FindsThatOneCommunicatorsOperationsWaitForEachOther) {
  const auto comms = communicators();
  for (int rank = 0; rank < kRanks; ++rank) {
    receive(comms[size_t(rank)], rank, 0);
    send(comms[size_t(rank)], rank, 1);
  }
  EXPECT_EQ(cudaStreamSynchronize(at(0, 0)), cudaErrorLaunchFailure);
  const std::string what = cuda_on_cpu::failure();
  EXPECT_NE(what.find("deadlock"), std::string::npos) << what;
  EXPECT_NE(what.find("rank 0 of group \"\": ncclRecv (from 1)"), std::string::npos) << what;
  EXPECT_NE(what.find("rank 1 of group \"\": ncclSend (to 0)"), std::string::npos) << what;
}

TEST_F(NcclOnCpu, LetsDifferentCommunicatorsPassEachOther) {
  const auto up = communicators(), down = communicators();
  receive(down[0], 0, 0);
  send(up[0], 0, 1);
  receive(up[1], 1, 0);
  send(down[1], 1, 1);
  EXPECT_EQ(cudaStreamSynchronize(at(0, 0)), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(at(1, 0)), cudaSuccess);
}

// Both GPUs are full of operations whose peers wait for room.
TEST_F(NcclOnCpu, RunsOutOfBlocks) {
  ncclConfig_t config;
  config.maxCTAs = nccl_on_cpu::kBlocksOfOne;
  std::vector<std::array<ncclComm_t, kRanks>> groups;
  std::vector<cudaStream_t> streams;
  constexpr int kGroups = 2 * (nccl_on_cpu::kBlocks / nccl_on_cpu::kBlocksOfOne);
  for (int g = 0; g < kGroups; ++g) groups.push_back(communicators(config));
  for (int rank = 0; rank < kRanks; ++rank) {
    cudaSetDevice(rank);
    for (int i = 0; i < kGroups; ++i) {
      cudaStream_t stream = nullptr;
      cudaStreamCreateWithFlags(&stream, 0);
      streams.push_back(stream);
      const ncclComm_t comm = groups[size_t(rank == 0 ? i : kGroups - 1 - i)][size_t(rank)];
      ncclAllReduce(data_[size_t(rank)] + 16 * i, data_[size_t(rank)] + 16 * i, 4, ncclFloat32, ncclSum, comm,
                    stream);
    }
  }
  EXPECT_EQ(cudaStreamSynchronize(streams.front()), cudaErrorLaunchFailure);
  EXPECT_NE(cuda_on_cpu::failure().find("no room"), std::string::npos) << cuda_on_cpu::failure();
  cuda_on_cpu::forget_failure();
  for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

// So that one test's failure is not the next one's.
TEST_F(NcclOnCpu, AFailureLeavesNoBlocksInUse) {
  const auto comms = communicators();
  cudaStream_t stream = nullptr;
  cudaSetDevice(0);
  cudaStreamCreateWithFlags(&stream, 0);
  cudaStream_t other = at(0, 0);
  ncclAllReduce(data_[0], data_[0], 4, ncclFloat32, ncclSum, comms[0], stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  EXPECT_GT(nccl_on_cpu::blocks_used(0), 0);
  cuda_on_cpu::locked([] { cuda_on_cpu::fail("a planted failure"); });
  EXPECT_NE(ncclAllReduce(data_[0], data_[0], 4, ncclFloat32, ncclSum, comms[0], other), ncclSuccess);
  cudaStreamDestroy(stream);
  EXPECT_EQ(nccl_on_cpu::blocks_used(0), 0);
  cuda_on_cpu::forget_failure();
  // Nothing of this communicator stands before its next operation.
  ncclAllReduce(data_[0], data_[0], 4, ncclFloat32, ncclSum, comms[0], other);
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  EXPECT_GT(nccl_on_cpu::blocks_used(0), 0);
}

// What is found where another stream fills the slot of a transfer at its end `end`, with an event between
// them or without.
std::string NcclOnCpu::race_at_end(int end, bool waits) {
  const auto comms = communicators();
  cudaSetDevice(end);
  cudaEvent_t ready = nullptr;
  cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  const auto fill = [&] { cudaMemsetAsync(data_[size_t(end)], 1, 64, at(end, 1)); };
  const auto order = [&](int first, int second) {
    if (!waits) return;
    cudaSetDevice(end);
    cudaEventRecord(ready, at(end, first));
    cudaStreamWaitEvent(at(end, second), ready, 0);
  };
  if (end == 0) {
    fill();
    order(1, 0);
  }
  send(comms[0], 0, 0);
  receive(comms[1], 1, 0);
  if (end == 1) {
    order(0, 1);
    fill();
  }
  for (int rank = 0; rank < kRanks; ++rank) cuda_on_cpu::drain_gpu(rank);
  cudaEventDestroy(ready);
  return cuda_on_cpu::failure();
}

TEST_F(NcclOnCpu, FindsASlotThatIsSentTooEarly) {
  EXPECT_EQ(race_at_end(0, true), "");
  const std::string what = race_at_end(0, false);
  EXPECT_NE(what.find("ncclSend"), std::string::npos) << what;
}
TEST_F(NcclOnCpu, FindsASlotThatIsUsedBeforeItArrives) {
  EXPECT_EQ(race_at_end(1, true), "");
  const std::string what = race_at_end(1, false);
  EXPECT_NE(what.find("no event orders"), std::string::npos) << what;
  EXPECT_NE(what.find("GPU 1"), std::string::npos) << what;
}

TEST_F(NcclOnCpu, TakesMemoryOfItsGpuOnly) {
  const auto comms = communicators();
  const std::vector<char> pageable(64);
  cudaSetDevice(0);
  EXPECT_EQ(ncclSend(pageable.data(), 64, ncclInt8, 1, comms[0], at(0, 0)), ncclUnhandledCudaError);
  EXPECT_NE(cuda_on_cpu::failure().find("illegal address"), std::string::npos);
  cuda_on_cpu::forget_failure();
  EXPECT_EQ(ncclSend(data_[1], 64, ncclInt8, 1, comms[0], at(0, 0)), ncclUnhandledCudaError);
}

TEST_F(NcclOnCpu, EndsWhatIsAborted) {
  const auto comms = communicators();
  receive(comms[0], 0, 0);
  EXPECT_EQ(cudaStreamQuery(at(0, 0)), cudaErrorNotReady);
  ncclCommAbort(comms[0]);
  EXPECT_EQ(cudaStreamSynchronize(at(0, 0)), cudaSuccess);
  EXPECT_NE(send(comms[0], 0, 0), ncclSuccess);
}

TEST_F(NcclOnCpu, NoticesThatRanksCallDifferently) {
  const auto comms = communicators();
  for (int rank = 0; rank < kRanks; ++rank) {
    cudaSetDevice(rank);
    ncclAllReduce(data_[size_t(rank)], data_[size_t(rank)], size_t(4 + rank), ncclFloat32, ncclSum,
                  comms[size_t(rank)], at(rank, 0));
  }
  EXPECT_EQ(cudaStreamSynchronize(at(0, 0)), cudaErrorLaunchFailure);
  EXPECT_NE(cuda_on_cpu::failure().find("meets another call"), std::string::npos);
}

}  // namespace
