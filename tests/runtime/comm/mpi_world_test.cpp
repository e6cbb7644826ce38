// SPDX-License-Identifier: Apache-2.0

// Under mpirun, once in each process (tests/runtime/mpirun_test.py).

#include <gtest/gtest.h>

#include "runtime/comm/mpi/mpi_module.h"
#include "runtime/comm/sockets/socket_world.h"
#include "tests/support/check_collectives.h"

namespace mpt::runtime {
namespace {

// MPI is initialised once for all tests. A process of several ranks calls it from several threads.
class MpiWorldTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const auto launch = launch_from_environment();
    if (!launch) return;
    ranks = 2 * launch->processes;
    control = make_socket_world({*launch, ranks, "0123456789abcdef", kTimeout});
    std::string said;
    world = make_mpi_world(*control, *launch, kTimeout, said);
    ASSERT_TRUE(world) << said;
  }
  static void TearDownTestSuite() {
    world.reset();
    control.reset();
  }
  void SetUp() override {
    if (!world) GTEST_SKIP() << "not under mpirun";
  }

  static World& world_of(int) { return *world; }

  static constexpr std::chrono::milliseconds kTimeout{5000};
  static inline int ranks = 0;
  static inline std::unique_ptr<World> control, world;
};

TEST_F(MpiWorldTest, CollectivesAreExact) {
  for (const int64_t count : {0, 1, 1000, 10007}) {
    test::check_collectives<float>(ranks, world_of, count, world->local_ranks());
    test::check_collectives<double>(ranks, world_of, count, world->local_ranks());
  }
}

TEST_F(MpiWorldTest, SumsHaveTheBitsOfThreads) {
  test::check_sums_of_threads(ranks, world_of, world->local_ranks());
}

// Each lane of a rank has its own groups and waits in its own thread.
TEST_F(MpiWorldTest, LanesUseGroupsAtTheSameTime) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) members.push_back(rank);
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 3; ++lane) {
    for (const int rank : world->local_ranks()) {
      lanes.emplace_back([&members, lane, rank] {
        const auto group = world->communicator(rank, members, "lane " + std::to_string(lane));
        for (int round = 0; round < 200; ++round) {
          std::vector<double> data(size_t(1 + round * 97 % 3000), double(rank + lane));
          group->all_reduce(data.data(), int64_t(data.size()), DataType::float64, ReduceOperation::maximum);
          ASSERT_EQ(data, std::vector<double>(data.size(), double(ranks - 1 + lane)));
        }
      });
    }
  }
  for (std::thread& lane : lanes) lane.join();
}

// The last test: nothing works after an abort.
TEST_F(MpiWorldTest, AnAbortEndsTheWaitsOfOtherProcessesWithItsReason) {
  const int last = ranks - 1;
  const bool is_first = world->local_ranks().front() == 0;
  if (is_first) {
    const auto group = world->communicator(0, {0, last}, "aborted");
    try {
      group->barrier();
      ADD_FAILURE() << "nobody else called barrier";
    } catch (const CommunicationError& error) {
      EXPECT_EQ(std::string(error.what()),
                "stopped while in barrier of group aborted, rank 0 (waiting for rank " +
                    std::to_string(last) + "): planted");
    }
  } else if (world->local_ranks().back() == last) {
    const auto group = world->communicator(last, {0, last}, "aborted");
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    world->abort("planted");
  }
}

}  // namespace
}  // namespace mpt::runtime
