// SPDX-License-Identifier: Apache-2.0

// How groups over NCCL keep memory registered. NCCL and the GPUs are those on the CPU.

#include "runtime/comm/nccl/nccl_world.h"

#include <gtest/gtest.h>
#include <nccl.h>

#include <array>
#include <thread>

#include "runtime/comm/threads/thread_world.h"

namespace mpt::runtime {
namespace {

// Two ranks, each of which may be on another host than the other.
class NcclRegistration : public testing::Test {
 protected:
  void SetUp() override {
    for (size_t rank = 0; rank < devices_.size(); ++rank) {
      devices_[rank] = cuda::make_cuda_device(int(rank));
      memory_[rank] = devices_[rank]->allocate(64);
    }
  }
  void TearDown() override {
    nccl_on_cpu::refuse_registration(-1);
    const char* first = "";
    EXPECT_EQ(nccl_on_cpu::take_mistakes(&first), 0) << first;
    for (size_t rank = 0; rank < devices_.size(); ++rank) devices_[rank]->release(memory_[rank], 64);
  }

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
  static size_t registered(int rank) { return nccl_on_cpu::registered_bytes(rank); }

  std::array<std::unique_ptr<cuda::StreamDevice>, 2> devices_;
  std::array<void*, 2> memory_{};
};

TEST_F(NcclRegistration, LastsAsLongAsItIsHeld) {
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    auto held = group->register_memory(memory_[size_t(rank)], 64);
    EXPECT_NE(held, nullptr);
    EXPECT_EQ(registered(rank), 64u);
    held.reset();
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, OutlivesTheCommunicatorUnharmed) {
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    const auto held = group->register_memory(memory_[size_t(rank)], 64);
    group.reset();
    EXPECT_EQ(registered(rank), 64u);
  });
}

TEST_F(NcclRegistration, IsLeftAloneWhereRanksShareAHost) {
  on_both({"a", "a"}, [&](int rank, World&, auto& group) {
    EXPECT_EQ(group->register_memory(memory_[size_t(rank)], 64), nullptr);
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, OfNobodyWhereOneCannot) {
  nccl_on_cpu::refuse_registration(1);
  on_both({"a", "b"}, [&](int rank, World&, auto& group) {
    EXPECT_EQ(group->register_memory(memory_[size_t(rank)], 64), nullptr);
    EXPECT_EQ(registered(rank), 0u);
  });
}

TEST_F(NcclRegistration, EndsWithAnAbort) {
  on_both({"a", "b"}, [&](int rank, World& world, auto& group) {
    const auto held = group->register_memory(memory_[size_t(rank)], 64);
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
