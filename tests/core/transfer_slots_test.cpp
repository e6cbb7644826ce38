// SPDX-License-Identifier: Apache-2.0

// Transfer slots against the nominal timeline, moment by moment.

#include "core/lower.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "core/schedule_catalog.h"

namespace mpt {
namespace {

// When each stage is done with each micro-batch, forward and on the way home.
using Ends = std::map<std::tuple<bool, int, int>, int64_t>;

Ends ends_of(const Schedule& schedule) {
  const NominalPlacement placement = place_nominally(schedule);
  Ends ends;
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    for (size_t i = 0; i < schedule.rows[r].size(); ++i) {
      const Action& a = schedule.rows[r][i];
      if (a.kind == ActionKind::weight_gradient) continue;
      ends[{a.kind == ActionKind::forward, a.stage, a.micro_batch}] =
          placement.start[r][i] + nominal_duration(a.kind);
    }
  }
  return ends;
}

// Most that have arrived from `from` and that `to` is not done with, as any one arrives.
int most_waiting(const Schedule& schedule, const Ends& ends, bool forward, int from, int to) {
  int most = 0;
  for (int m = 0; m < schedule.micro_batches; ++m) {
    const int64_t now = ends.at({forward, from, m});
    int waiting = 0;
    for (int other = 0; other < schedule.micro_batches; ++other)
      waiting += ends.at({forward, from, other}) <= now && ends.at({forward, to, other}) > now ? 1 : 0;
    most = std::max(most, waiting);
  }
  return most;
}

TEST(TransferSlots, HoldWhatHasArrivedAndOneMore) {
  int exact = 0, all = 0;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int v : {1, 2, 3, 6}) {
        if (v < entry.min_chunks || v > entry.max_chunks) continue;
        for (const int m : {1, 2, 5, 16}) {
          const Schedule schedule = entry.generate(p, v, m);
          const Ends ends = ends_of(schedule);
          const std::vector<StageSlots> slots = transfer_slots(schedule);
          ASSERT_EQ(slots.size(), size_t(p * v));
          EXPECT_EQ(slots.front().receive_activation + slots.front().send_gradient, 0);
          EXPECT_EQ(slots.back().receive_gradient + slots.back().send_activation, 0);
          for (int s = 0; s + 1 < p * v; ++s) {
            const StageSlots &below = slots[size_t(s)], &above = slots[size_t(s) + 1];
            if (schedule.rank_of_stage[size_t(s)] == schedule.rank_of_stage[size_t(s) + 1]) {
              EXPECT_EQ(below.send_activation + above.receive_activation, 0) << entry.name;
              EXPECT_EQ(above.send_gradient + below.receive_gradient, 0) << entry.name;
              continue;
            }
            EXPECT_EQ(below.send_activation, std::min(2, m));
            EXPECT_EQ(above.send_gradient, std::min(2, m));
            for (const auto& [have, waiting] :
                 {std::pair{above.receive_activation, most_waiting(schedule, ends, true, s, s + 1)},
                  {below.receive_gradient, most_waiting(schedule, ends, false, s + 1, s)}}) {
              // Slots are taken in turn: where micro-batches overtake each other it takes more.
              EXPECT_GE(have, std::min(m, waiting + 1)) << entry.name << " " << p << " " << v << " " << m;
              EXPECT_LE(have, m) << entry.name;
              exact += have == std::min(m, waiting + 1) ? 1 : 0;
              ++all;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(all, 1000);
  EXPECT_GT(10 * exact, 9 * all);
}

}  // namespace
}  // namespace mpt
