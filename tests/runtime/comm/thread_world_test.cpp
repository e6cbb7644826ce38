// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/threads/thread_world.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

#include "tests/support/check_collectives.h"

namespace mpt::runtime {
namespace {

using namespace std::chrono_literals;

void on_ranks(int ranks, ThreadWorld& world, const std::function<void(int, Communicator&)>& body) {
  test::on_ranks(
      ranks, [&](int) -> World& { return world; }, body);
}

template <class T>
void check_collectives(int ranks, int64_t count) {
  ThreadWorld world(20s);
  test::check_collectives<T>(
      ranks, [&](int) -> World& { return world; }, count);
}

TEST(ThreadWorld, CollectivesAreExactOverSizesThatDivideAndThatDoNot) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    for (const int64_t count : {0, 1, 3, 1000, 10007}) {
      check_collectives<float>(ranks, count);
      check_collectives<double>(ranks, count);
    }
  }
}

TEST(ThreadWorld, AllReduceGivesEveryRankTheSameBits) {
  ThreadWorld world(20s);
  constexpr int kRanks = 4;
  std::vector<std::vector<float>> results(kRanks);
  on_ranks(kRanks, world, [&](int rank, Communicator& group) {
    std::vector<float> data(5001);
    for (size_t i = 0; i < data.size(); ++i) data[i] = 1.0f / float(i + 1) / float(rank * 3 + 1);
    group.all_reduce(data.data(), int64_t(data.size()), DataType::float32, ReduceOperation::sum);
    results[size_t(rank)] = data;
  });
  for (const auto& result : results)
    EXPECT_EQ(std::memcmp(result.data(), results[0].data(), result.size() * 4), 0);
}

TEST(ThreadWorld, MessagesArriveInOrderBothWays) {
  ThreadWorld world(20s);
  on_ranks(2, world, [](int rank, Communicator& group) {
    for (int i = 0; i < 200; ++i) {
      int out = i * 2 + rank, in = -1;
      if (rank == 0) {
        group.send(&out, sizeof out, 1);
        group.receive(&in, sizeof in, 1);
        EXPECT_EQ(in, i * 2 + 1);
      } else {
        group.receive(&in, sizeof in, 0);
        group.send(&out, sizeof out, 0);
        EXPECT_EQ(in, i * 2);
      }
    }
  });
}

TEST(ThreadWorld, AbortWakesEveryWaiterWithTheReason) {
  ThreadWorld world(60s);
  std::vector<std::string> messages(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r) {
    threads.emplace_back([&, r] {
      const auto group = world.communicator(r, {0, 1, 2, 3}, "g");
      float x = 0;
      try {
        r == 2 ? group->receive(&x, 4, 3) : group->all_reduce(&x, 1, DataType::float32, ReduceOperation::sum);
      } catch (const CommunicationError& error) {
        messages[size_t(r)] = error.what();
      }
    });
  }
  std::this_thread::sleep_for(50ms);
  world.abort("rank 3 lost its mind");
  for (auto& thread : threads) thread.join();
  for (const std::string& message : messages)
    EXPECT_NE(message.find("rank 3 lost its mind"), std::string::npos) << message;
  EXPECT_TRUE(world.aborted());
}

TEST(ThreadWorld, ATimeoutNamesOperationGroupAndWhoIsMissing) {
  ThreadWorld world(100ms);
  const auto group = world.communicator(1, {0, 1, 5}, "tensor");
  float x = 0;
  try {
    group->all_reduce(&x, 1, DataType::float32, ReduceOperation::sum);
    FAIL();
  } catch (const CommunicationError& error) {
    const std::string text = error.what();
    for (const char* part : {"timeout", "all_reduce", "tensor", "rank 1", "not arrived: rank 0, 5"}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
