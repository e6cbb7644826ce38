// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/list_scheduler.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "core/activation_peaks.h"

namespace mpt {
namespace {

ListTask equal_stages(int ranks, int chunks, int micro_batches, const StageSeconds& seconds) {
  ListTask task{ranks, chunks, micro_batches, generated_placement(ranks, chunks), {}, {}, {}};
  task.seconds.assign(size_t(ranks * chunks), seconds);
  task.footprints.resize(task.seconds.size());
  task.limit_bytes.assign(size_t(ranks), 0);
  return task;
}

// Without a limit on memory no rank waits but for the first micro-batch to reach it, so that the last rank
// ends behind p - 1 forwards and all its own work (arXiv:2401.10241, section 2.2), whatever the ratio of the
// three passes, as long as weight gradients are there to fill the gaps.
TEST(ListScheduler, WithoutALimitNothingButTheFillingIsLost) {
  for (const int p : {1, 2, 3, 4, 8}) {
    for (const StageSeconds& t :
         {StageSeconds{1, 1, 1, 0, 0}, StageSeconds{1, 2, 1, 0, 0}, StageSeconds{2, 1, 3, 0, 0}}) {
      const int m = 4 * p;
      const auto made = list_schedule(equal_stages(p, 1, m, t), list_policies().front());
      ASSERT_TRUE(made);
      EXPECT_FALSE(find_defect(made->schedule));
      EXPECT_DOUBLE_EQ(made->end_s,
                       m * (t.forward_s + t.input_gradient_s + t.weight_gradient_s) + (p - 1) * t.forward_s);
    }
  }
}

struct RandomTask {
  explicit RandomTask(uint32_t seed) : random(seed) {
    const int ranks = whole(1, 6), chunks = whole(1, 3);
    task = equal_stages(ranks, chunks, whole(1, 12), {});
    for (StageSeconds& s : task.seconds) s = {part(), part(), part(), 0.3 * part(), 0.3 * part()};
    for (StageFootprint& f : task.footprints) {
      f.parameter_bytes = whole(0, 20);
      f.saved_bytes = whole(1, 10);
      f.saved_for_weight_bytes = whole(0, 12);
      f.forward_workspace_bytes = whole(0, 5);
      f.backward_workspace_bytes = whole(0, 5);
    }
    for (int64_t& limit : task.limit_bytes) limit = whole(20, 200);
  }
  int whole(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); }
  double part() { return std::uniform_real_distribution<double>(0.1, 2.0)(random); }

  std::mt19937 random;
  ListTask task;
};

TEST(ListScheduler, SchedulesRunAndKeepToTheirMemory) {
  int made = 0, refused = 0;
  for (uint32_t seed = 0; seed < 600; ++seed) {
    const RandomTask r(seed);
    for (const ListPolicy& policy : list_policies()) {
      const auto timed = list_schedule(r.task, policy);
      ++(timed ? made : refused);
      if (!timed) continue;
      const auto defect = find_defect(timed->schedule);
      ASSERT_FALSE(defect) << seed << " " << *defect;
      std::vector<StageFootprint> footprints = r.task.footprints;
      for (StageFootprint& f : footprints) f.boundary_bytes = 0;  // transfer slots are not its concern
      const auto peaks = peak_bytes(timed->schedule, footprints);
      for (size_t rank = 0; rank < peaks.size(); ++rank)
        EXPECT_LE(peaks[rank], r.task.limit_bytes[rank]) << seed << " rank " << rank;
    }
  }
  EXPECT_GT(made, 500);
  EXPECT_GT(refused, 100);
}

// A rank that can hold one micro-batch of each of its stages always gets through.
TEST(ListScheduler, TheLeastMemoryIsEnough) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    RandomTask r(seed);
    ListTask& task = r.task;
    std::vector<int64_t> forward(size_t(task.ranks), 0), backward = forward, for_weight = forward;
    std::fill(task.limit_bytes.begin(), task.limit_bytes.end(), 0);
    for (size_t s = 0; s < task.footprints.size(); ++s) {
      const StageFootprint& f = task.footprints[s];
      const auto rank = size_t(task.rank_of_stage[s]);
      task.limit_bytes[rank] += f.static_bytes() + f.saved_bytes;
      forward[rank] = std::max(forward[rank], f.forward_workspace_bytes);
      backward[rank] = std::max(backward[rank], f.backward_workspace_bytes);
      for_weight[rank] = std::max(for_weight[rank], f.saved_for_weight_bytes);
    }
    for (size_t rank = 0; rank < forward.size(); ++rank)
      task.limit_bytes[rank] += std::max(forward[rank], backward[rank] + for_weight[rank]);
    EXPECT_TRUE(list_schedule(task, list_policies().front())) << seed;
    const size_t tight = seed % forward.size();
    --task.limit_bytes[tight];
    EXPECT_FALSE(list_schedule(task, list_policies().front())) << seed;
  }
}

TEST(ListScheduler, GivesUpWhereItWouldBeTooLate) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const RandomTask r(seed);
    const auto whole = list_schedule(r.task, list_policies().front());
    if (!whole) continue;
    EXPECT_TRUE(list_schedule(r.task, list_policies().front(), whole->end_s * 1.0001)) << seed;
    EXPECT_FALSE(list_schedule(r.task, list_policies().front(), whole->end_s * 0.9999)) << seed;
  }
}

}  // namespace
}  // namespace mpt
