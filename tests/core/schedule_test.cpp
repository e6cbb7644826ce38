// SPDX-License-Identifier: Apache-2.0
#include "core/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core/activation_peaks.h"
#include "core/schedule_catalog.h"

namespace mpt {
namespace {

// Every schedule of the catalog over ranks, chunks and micro-batches, with the awkward ones.
template <class F>
void for_each_schedule(F&& body) {
  for (const ScheduleEntry& entry : schedule_catalog()) {
    for (const int ranks : {1, 2, 3, 4, 8}) {
      for (const int chunks : {1, 2, 3}) {
        if (chunks < entry.min_chunks || chunks > entry.max_chunks) continue;
        for (const int micro_batches : {1, 2, 3, 5, 8, 16, 17})
          body(entry, entry.generate(ranks, chunks, micro_batches));
      }
    }
  }
}

TEST(Schedule, EveryGeneratedScheduleIsCompleteOrderedAndFreeOfDeadlock) {
  int count = 0;
  for_each_schedule([&](const ScheduleEntry& entry, const Schedule& schedule) {
    ++count;
    EXPECT_EQ(schedule.name, entry.name);
    const auto defect = find_defect(schedule);
    EXPECT_FALSE(defect) << *defect;
  });
  EXPECT_GE(count, 140);
}

TEST(Schedule, RowsRoundTripThroughText) {
  for_each_schedule([](const ScheduleEntry&, const Schedule& schedule) {
    for (size_t r = 0; r < schedule.rows.size(); ++r) {
      const bool with_stage = schedule.chunks > 1;
      const auto row = row_from_text(row_to_text(schedule.rows[r], with_stage), int(r), nullptr);
      ASSERT_TRUE(row);
      EXPECT_EQ(*row, schedule.rows[r]);
    }
  });
}

// The column `leanest` of the catalog, by its definition.
TEST(Schedule, TheLeanestHasThePlacementOfAGeneratedOneAndHoldsLeast) {
  const ScheduleEntry& generated = find_schedule("generated", "test");
  for (int chunks = generated.min_chunks; chunks <= generated.max_chunks; chunks += chunks < 4 ? 1 : 20) {
    const ScheduleEntry& leanest = leanest_schedule(generated, chunks);
    ASSERT_FALSE(leanest.made_to_measure);
    for (const int ranks : {2, 4}) {
      std::vector<StageFootprint> footprints(size_t(ranks * chunks));
      for (StageFootprint& f : footprints) f.saved_bytes = 1;
      const auto most_held = [&](const ScheduleEntry& entry) {
        const auto peaks = peak_bytes(entry.generate(ranks, chunks, 4 * ranks), footprints);
        return *std::max_element(peaks.begin(), peaks.end());
      };
      const std::vector<int> placement = generated.placement(ranks, chunks);
      EXPECT_EQ(leanest.placement(ranks, chunks), placement) << leanest.name << " " << chunks;
      for (const ScheduleEntry& entry : schedule_catalog()) {
        const bool has_chunks = entry.min_chunks <= chunks && chunks <= entry.max_chunks;
        if (entry.made_to_measure || !has_chunks || entry.placement(ranks, chunks) != placement) continue;
        EXPECT_LE(most_held(leanest), most_held(entry)) << entry.name << " " << chunks << " " << ranks;
      }
    }
  }
}

TEST(Schedule, AWarmStartHasASchedulePerPlacement) {
  for (const int chunks : {1, 2, 3}) {
    for (const auto placement : {round_robin_placement, v_placement}) {
      if (placement == v_placement && chunks != 2) continue;
      const auto& all = schedule_catalog();
      EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const ScheduleEntry& e) {
        return e.warm_start && !e.made_to_measure && e.min_chunks <= chunks && chunks <= e.max_chunks &&
               e.placement == placement;
      })) << chunks;
    }
  }
}

TEST(Schedule, OneFOneBOfFourRanksIsTheTextbookOne) {
  const Schedule schedule = find_schedule("1f1b", "test").generate(4, 1, 6);
  EXPECT_EQ(row_to_text(schedule.rows[0], false), "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5");
  EXPECT_EQ(row_to_text(schedule.rows[3], false), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5");
}

TEST(Schedule, InterleavedOfTwoRanksIsTheTextbookOne) {
  const Schedule schedule = find_schedule("interleaved", "test").generate(2, 2, 4);
  EXPECT_EQ(row_to_text(schedule.rows[0], true),
            "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3");
}

// Nominal step length in forward units against the closed forms (arXiv:2104.04473, section 2.2): per rank 3m
// of work and a bubble of 3(p-1), divided by the chunks when interleaved (where a chunk is the unit, hence
// times v).
TEST(Schedule, NominalLengthEqualsTheClosedForm) {
  for (const int p : {1, 2, 4, 8}) {
    for (const int v : {1, 2, 4}) {
      const int m = 2 * p;
      for (const ScheduleEntry& entry : schedule_catalog()) {
        if (v < entry.min_chunks || v > entry.max_chunks || entry.splits_backward) continue;
        const Schedule schedule = entry.generate(p, v, m);
        const NominalPlacement placement = place_nominally(schedule);
        int64_t end = 0;
        for (size_t r = 0; r < schedule.rows.size(); ++r) {
          end = std::max(end, placement.start[r].back() + nominal_duration(schedule.rows[r].back().kind));
        }
        EXPECT_EQ(end, 3 * m * v + 3 * (p - 1)) << entry.name << " p " << p << " v " << v;
      }
    }
  }
}

// What a schedule with split backward takes in units of one chunk's forward, and holds in chunks.
struct UnitRun {
  int64_t end = 0;           // of the last action
  int64_t longest_span = 0;  // of a rank, from its first action to its last
  int held = 0;              // chunks with forward done and weight gradient not, at most
};
UnitRun unit_run(const std::string& name, int ranks, int micro_batches) {
  const ScheduleEntry& entry = find_schedule(name, "test");
  const Schedule schedule = entry.generate(ranks, entry.min_chunks, micro_batches);
  const NominalPlacement placement = place_nominally(schedule);
  UnitRun run;
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    const int64_t end = placement.start[r].back() + 1;
    run.end = std::max(run.end, end);
    run.longest_span = std::max(run.longest_span, end - placement.start[r].front());
    int held = 0;
    for (const Action& a : schedule.rows[r]) {
      held += a.kind == ActionKind::forward ? 1 : 0;
      run.held = std::max(run.held, held);
      held -= a.kind == ActionKind::weight_gradient ? 1 : 0;
    }
  }
  return run;
}

// arXiv:2401.10241, table 1, with forward, input and weight gradient of one unit each: the bubble of ZB-H1 is
// (p-1)(F + I - W), that of ZB-H2 (p-1)(F + I - 2W) between a rank's own first and last action; they hold p
// and 2p-1 micro-batches.
TEST(Schedule, ZeroBubbleSchedulesMeetTheirClosedForms) {
  for (const int p : {2, 3, 4, 5, 8, 13, 16}) {
    for (const int m : {2 * p - 1, 2 * p, 3 * p + 1, 6 * p}) {
      const UnitRun h1 = unit_run("zb-h1", p, m), h2 = unit_run("zb-h2", p, m);
      EXPECT_EQ(h1.end, 3 * m + (p - 1)) << p << " " << m;
      EXPECT_EQ(h1.held, p);
      EXPECT_EQ(h2.longest_span, 3 * m) << p << " " << m;
      EXPECT_EQ(h2.held, 2 * p - 1);
    }
  }
}

// arXiv:2405.15362, table 1: against 1F1B, whose bubble is 6(p-1) chunk units and which holds 2p chunks: zb-v
// holds the same, and ends p-1 units behind its work, when the last rank can have done its own at the
// earliest; v-half has half the bubble for half the memory and a constant, v-min two thirds for a third. With
// p divisible by 3 the passes of v-min meet on some rank unless a unit is lost at a turn (the publication,
// section 3.3).
TEST(Schedule, VShapedSchedulesMeetTheirClosedForms) {
  for (const int p : {2, 3, 4, 5, 6, 8, 13, 16}) {
    for (const int m : {p, 2 * p, 3 * p + 1, 6 * p}) {
      const UnitRun zb = unit_run("zb-v", p, m), half = unit_run("v-half", p, m),
                    min = unit_run("v-min", p, m);
      EXPECT_EQ(zb.end, 6 * m + (p - 1)) << p << " " << m;
      EXPECT_LE(zb.held, 2 * p);
      EXPECT_LE(half.end, 6 * m + 3 * (p - 1)) << p << " " << m;
      EXPECT_LE(half.held, p + 3);
      EXPECT_LE(min.end, 6 * m + 4 * (p - 1) + (p % 3 == 0 ? 1 : 0)) << p << " " << m;
      EXPECT_LE(min.held, (2 * p + 2) / 3 + 2);
    }
  }
}

// arXiv:2412.19437, table 2, for p ranks with two chunks: 2p + 1 chunks held, and a bubble of
// (p-1)(F&B + B - 3W) = 2(p-1) units where a backward is one piece. Here the gradient leaves after its first
// half, so that the bubble is that of zb-v.
TEST(Schedule, DualPipeVMeetsItsClosedForm) {
  for (const int p : {2, 3, 4, 5, 8, 13, 16}) {
    for (const int m : {2 * p, 2 * p + 1, 5 * p}) {
      const UnitRun run = unit_run("dualpipe-v", p, m);
      EXPECT_EQ(run.end, 6 * m + (p - 1)) << p << " " << m;
      EXPECT_EQ(run.held, 2 * p + 1);
    }
  }
}

TEST(Schedule, DefectsAreFoundAndTheCellIsMarked) {
  const Schedule good = find_schedule("1f1b", "test").generate(2, 1, 3);

  Schedule missing = good;
  missing.rows[1].pop_back();
  EXPECT_NE(find_defect(missing)->find("stage 1, micro-batch 2 needs one F"), std::string::npos);

  Schedule twice = good;
  twice.rows[0].push_back(twice.rows[0].front());
  EXPECT_NE(find_defect(twice)->find("the same action twice"), std::string::npos);

  Schedule stuck = good;  // rank 1 wants micro-batch 2 first, which rank 0 sends only after a backward of 0
  std::swap(stuck.rows[1][0], stuck.rows[1][4]);
  const auto defect = find_defect(stuck);
  ASSERT_TRUE(defect);
  EXPECT_NE(defect->find("waits for ever"), std::string::npos);
  EXPECT_NE(defect->find("["), std::string::npos) << *defect;

  Schedule elsewhere = good;
  elsewhere.rows[0][0].stage = 1;
  EXPECT_NE(find_defect(elsewhere)->find("stage 1 is on rank 1"), std::string::npos);
}

TEST(Schedule, ADescriptionWithAPhantomForwardIsRefused) {
  // What PyTorch's Schedule1F1B once described for the last of four ranks: forward 0 missing, a forward 6
  // that is none.
  Schedule schedule = find_schedule("1f1b", "test").generate(4, 1, 6);
  schedule.rows[3] = *row_from_text("F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 F6 B5", 3, nullptr);
  EXPECT_TRUE(find_defect(schedule));
}

TEST(Schedule, SplitBackwardIsAccepted) {
  Schedule schedule = find_schedule("1f1b", "test").generate(2, 1, 2);
  schedule.rows[0] = *row_from_text("F0 F1 I0 W0 I1 W1", 0, nullptr);
  schedule.rows[1] = *row_from_text("F0 I0 F1 I1 W0 W1", 1, nullptr);
  EXPECT_FALSE(find_defect(schedule));
  schedule.rows[1] = *row_from_text("F0 W0 I0 F1 I1 W1", 1, nullptr);  // W before I
  EXPECT_TRUE(find_defect(schedule));
}

TEST(Schedule, MalformedActionsAreNamed) {
  for (const char* bad : {"F", "X0", "F-1", "F0x", "3", "F99999999999999999999", "F0,B0"}) {
    std::string word;
    EXPECT_FALSE(row_from_text(std::string("F0 ") + bad, 0, &word)) << bad;
    EXPECT_EQ(word, std::string(bad).substr(0, 40));
  }
}

TEST(Schedule, UnknownNameSuggestsTheNearest) {
  try {
    find_schedule("1f1B", "--schedule");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("unknown schedule \"1f1B\"; did you mean \"1f1b\"?"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace mpt
