// SPDX-License-Identifier: Apache-2.0

// How groups over NCCL keep memory registered, with functions of this file in NCCL's place: they note what is
// done to groups that are gone. Devices are those on the CPU.

#include "runtime/comm/nccl/nccl_world.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <map>
#include <mutex>
#include <thread>

#include "runtime/comm/threads/thread_world.h"

struct ncclComm {
  int rank = 0;
  std::map<void*, size_t> registered;  // and its bytes
  bool aborted = false;
};

namespace mpt::runtime {
namespace {

struct Fake {
  std::mutex mutex;
  int refusing_rank = -1;
  std::vector<std::unique_ptr<ncclComm>> groups;  // of which there were any
  std::vector<std::string> mistakes;
};
Fake* fake = nullptr;

}  // namespace
}  // namespace mpt::runtime

using mpt::runtime::fake;

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "an error"; }

ncclResult_t ncclCommInitRankConfig(ncclComm_t* group, int, ncclUniqueId, int rank, ncclConfig_t*) {
  const std::lock_guard lock(fake->mutex);
  fake->groups.push_back(std::make_unique<ncclComm>());
  *group = fake->groups.back().get();
  (*group)->rank = rank;
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t group) {
  const std::lock_guard lock(fake->mutex);
  group->aborted = true;
  group->registered.clear();
  return ncclSuccess;
}
ncclResult_t ncclCommDestroy(ncclComm_t group) {
  const std::lock_guard lock(fake->mutex);
  if (!group->registered.empty()) fake->mistakes.push_back("destroyed with registered memory");
  if (group->aborted) fake->mistakes.push_back("destroyed after an abort");
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t group, void* data, size_t bytes, void** handle) {
  const std::lock_guard lock(fake->mutex);
  if (group->aborted) fake->mistakes.push_back("registered after an abort");
  if (group->rank == fake->refusing_rank) return ncclSystemError;
  group->registered[data] = bytes;
  *handle = data;
  return ncclSuccess;
}
ncclResult_t ncclCommDeregister(const ncclComm_t group, void* handle) {
  const std::lock_guard lock(fake->mutex);
  if (group->aborted || group->registered.erase(handle) == 0) fake->mistakes.push_back("not registered");
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                           cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclReduceScatter(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
                               cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclBroadcast(const void*, void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) {
  return ncclSuccess;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t) { return ncclSuccess; }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclSuccess; }

}  // extern "C"

namespace mpt::runtime {
namespace {

// Two ranks, each of which may be on another host than the other.
class NcclRegistration : public testing::Test {
 protected:
  void SetUp() override {
    fake = &state_;
    for (auto& device : devices_) device = cuda::make_cuda_device(0);
  }
  void TearDown() override { EXPECT_TRUE(state_.mistakes.empty()) << state_.mistakes.front(); }

  // Runs `body(rank, world, group)` on both ranks.
  template <class Body>
  void on_both(const std::array<std::string, 2>& hosts, Body body) {
    ThreadWorld control(std::chrono::seconds(30), 2);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        const auto world = make_nccl_world(control, {devices_[0].get(), devices_[1].get()},
                                           std::chrono::seconds(30), hosts[size_t(rank)]);
        auto group = world->communicator(rank, {0, 1}, "gradients");
        body(rank, *world, group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  size_t registered(int rank) {
    const std::lock_guard lock(state_.mutex);
    size_t bytes = 0;
    for (const auto& group : state_.groups) {
      for (const auto& [data, size] : group->registered) bytes += group->rank == rank ? size : 0;
    }
    return bytes;
  }

  Fake state_;
  std::array<std::unique_ptr<cuda::CudaDevice>, 2> devices_;
  std::array<char, 64> memory_{};
};

TEST_F(NcclRegistration, LastsAsLongAsItIsHeld) {
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    auto held = group->register_memory(memory_.data(), 64);
    EXPECT_NE(held, nullptr);
    EXPECT_EQ(registered(rank), 64u);
    held.reset();
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, OutlivesTheCommunicatorUnharmed) {
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    const auto held = group->register_memory(memory_.data(), 64);
    group.reset();
    EXPECT_EQ(registered(rank), 64u);
  });
}

TEST_F(NcclRegistration, IsLeftAloneWhereRanksShareAHost) {
  on_both({"a", "a"}, [&](int rank, World&, auto& group) {
    EXPECT_EQ(group->register_memory(memory_.data(), 64), nullptr);
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, OfNobodyWhereOneCannot) {
  state_.refusing_rank = 1;
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    EXPECT_EQ(group->register_memory(memory_.data(), 64), nullptr);
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, EndsWithAnAbort) {
  on_both({"a", "b"}, [&](int rank, World& world, auto& group) {
    const auto held = group->register_memory(memory_.data(), 64);
    EXPECT_NE(held, nullptr);
    world.abort("planted");
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST(NcclHost, IsWhatTheEnvironmentSays) {
  EXPECT_FALSE(nccl_host().empty());
  EXPECT_EQ(nccl_host(), nccl_host());
  setenv("NCCL_HOSTID", "host7", 1);
  EXPECT_EQ(nccl_host(), "host7");
  unsetenv("NCCL_HOSTID");
}

}  // namespace
}  // namespace mpt::runtime
