// SPDX-License-Identifier: Apache-2.0
#include "core/lower.h"
#include "core/activation_peaks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "core/schedule_catalog.h"
#include "tests/support/core_plan.h"

namespace mpt {
namespace {

struct Case {
  std::string schedule;
  int pipeline, chunks, micro_batches, data;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    for (const int p : {1, 2, 3, 4, 8}) {
      for (const int v : {1, 2, 3}) {
        if (v < entry.min_chunks || v > entry.max_chunks) continue;
        for (const int m : {1, 2, 5, 16}) {
          for (const int d : {1, 2}) all.push_back({entry.name, p, v, m, d});
        }
      }
    }
  }
  return all;
}

StepProgram program_for(const Case& c) {
  Layout layout;
  layout.pipeline = c.pipeline;
  layout.chunks = c.chunks;
  layout.data = c.data;
  const Schedule schedule = find_schedule(c.schedule, "test").generate(c.pipeline, c.chunks, c.micro_batches);
  return lower(layout, schedule, test::distinct_footprints(c.pipeline * c.chunks));
}

TEST(Lower, EveryProgramObeysTheOneRule) {
  for (const Case& c : cases()) {
    const StepProgram program = program_for(c);
    for (const StepProgram& each : {program, test::on_single_lanes(program)}) {
      const auto defect = find_defect(each);
      EXPECT_FALSE(defect) << c.schedule << ": " << *defect;
    }
  }
}

TEST(Lower, HoldsEveryComputeTransferAndStepEndOnce) {
  for (const Case& c : cases()) {
    const StepProgram program = program_for(c);
    std::map<InstructionKind, int> count;
    for (const Instruction& i : program.instructions) ++count[i.kind];
    const int stages = c.pipeline * c.chunks;
    EXPECT_EQ(count[InstructionKind::forward], stages * c.micro_batches);
    const bool split = find_schedule(c.schedule, "test").splits_backward;
    EXPECT_EQ(count[InstructionKind::backward], split ? 0 : stages * c.micro_batches);
    EXPECT_EQ(count[InstructionKind::input_gradient], split ? stages * c.micro_batches : 0);
    EXPECT_EQ(count[InstructionKind::weight_gradient], split ? stages * c.micro_batches : 0);
    int boundaries = 0;  // between stages on different ranks
    for (int s = 0; s + 1 < stages; ++s)
      boundaries += program.rank_of_stage[size_t(s)] != program.rank_of_stage[size_t(s) + 1] ? 1 : 0;
    EXPECT_EQ(count[InstructionKind::transfer_activation], boundaries * c.micro_batches);
    EXPECT_EQ(count[InstructionKind::transfer_gradient], boundaries * c.micro_batches);
    EXPECT_EQ(count[InstructionKind::reduce_gradient], c.data > 1 ? stages : 0);
    EXPECT_EQ(count[InstructionKind::optimizer_step], stages);
    EXPECT_EQ(count[InstructionKind::reduce_norm], 1);
  }
}

TEST(Lower, ComputeOfARankKeepsTheOrderOfItsRow) {
  for (const Case& c : cases()) {
    const Schedule schedule =
        find_schedule(c.schedule, "test").generate(c.pipeline, c.chunks, c.micro_batches);
    const StepProgram program = program_for(c);
    std::vector<std::vector<Action>> rows(size_t(c.pipeline));
    for (const Instruction& i : program.instructions) {
      if (i.kind > InstructionKind::weight_gradient) continue;
      rows[size_t(program.rank_of_stage[size_t(i.stage)])].push_back(
          {ActionKind(i.kind), i.stage, i.micro_batch});
    }
    EXPECT_EQ(rows, schedule.rows) << c.schedule;
  }
}

// A slot may be filled again only after what read it: checked by replaying the waits, not by lower()'s own
// counts.
TEST(Lower, NoSlotIsOverwrittenBeforeItWasRead) {
  for (const Case& c : cases()) {
    const StepProgram program = program_for(c);
    // ancestors[i]: instructions certain to be done before i starts, through waits and lanes.
    std::vector<std::set<InstructionId>> before(program.instructions.size());
    std::map<int, InstructionId> last_on_lane;
    std::map<std::tuple<int, bool, int>, InstructionId>
        reader_of_slot;  // (stage, activation, slot) -> consumer
    if (program.size() > 400) continue;
    for (InstructionId id = 0; id < program.size(); ++id) {
      auto& mine = before[size_t(id)];
      const auto inherit = [&](InstructionId other) {
        mine.insert(other);
        mine.insert(before[size_t(other)].begin(), before[size_t(other)].end());
      };
      for (const InstructionId wait : program.waits(id)) inherit(wait);
      for (const Lane& lane : program.lanes(id)) {
        if (last_on_lane.count(lane.index())) inherit(last_on_lane[lane.index()]);
        last_on_lane[lane.index()] = id;
      }
      const Instruction& i = program.instructions[size_t(id)];
      const bool forward = i.kind == InstructionKind::forward;
      if (i.is_transfer()) {
        const bool activation = i.kind == InstructionKind::transfer_activation;
        const int receiver = i.stage + (activation ? 1 : -1);
        const auto reader = reader_of_slot.find({receiver, activation, i.receive_slot});
        if (reader != reader_of_slot.end()) {
          EXPECT_TRUE(mine.count(reader->second)) << c.schedule << " " << id;
        }
      } else if (i.receive_slot >= 0) {
        reader_of_slot[{i.stage, forward, i.receive_slot}] = id;
      }
    }
  }
}

TEST(Lower, SlotsOfOneFOneBStayFew) {
  const StepProgram program = program_for({"1f1b", 8, 1, 64, 1});
  for (const StageSlots& slots : program.slots) EXPECT_LE(slots.total(), 12);
}

TEST(Lower, PeakOfOneFOneBIsTheSchedulesOwn) {
  // Rank r of 1F1B holds ranks - r micro-batches (arXiv:2104.04473, section 2.2.1); GPipe holds all.
  const int p = 4, m = 8;
  const auto footprints = test::distinct_footprints(p);
  const StepProgram one = program_for({"1f1b", p, 1, m, 1});
  const StepProgram all = program_for({"gpipe", p, 1, m, 1});
  for (int r = 0; r < p; ++r) {
    const StageFootprint& f = footprints[size_t(r)];
    const int64_t largest_workspace = f.backward_workspace_bytes;
    EXPECT_EQ(peak_bytes(one)[size_t(r)],
              one.static_bytes[size_t(r)] + (p - r) * f.saved_bytes + largest_workspace);
    EXPECT_EQ(peak_bytes(all)[size_t(r)],
              all.static_bytes[size_t(r)] + m * f.saved_bytes + largest_workspace);
  }
}

TEST(Lower, MemoryTraceEndsWhereItBegan) {
  for (const Case& c : cases()) {
    const StepProgram program = program_for(c);
    for (int r = 0; r < c.pipeline; ++r) {
      const auto trace = memory_trace(program, r);
      EXPECT_EQ(trace.back().after_bytes, program.static_bytes[size_t(r)]);
      const auto top = std::max_element(trace.begin(), trace.end(),
                                        [](auto& a, auto& b) { return a.during_bytes < b.during_bytes; });
      EXPECT_EQ(top->during_bytes, peak_bytes(program)[size_t(r)]);
    }
  }
}

// Stage 0 of 4 with as many micro-batches: all are held before any gradient is.
TEST(Lower, LateGradientsAreHeldFromTheFirstBackwardOn) {
  auto footprints = test::distinct_footprints(4);
  for (StageFootprint& f : footprints) {
    f.late_gradient_bytes = f.gradient_bytes;
    f.first_backward_workspace_bytes = f.late_gradient_bytes + 5;
  }
  const auto peak = [&](int micro_batches, int rank) {
    const Schedule schedule = find_schedule("1f1b", "test").generate(4, 1, micro_batches);
    Layout layout;
    layout.pipeline = 4;
    const StepProgram program = lower(layout, schedule, footprints);
    EXPECT_EQ(peak_bytes(program), peak_bytes(schedule, footprints));
    return peak_bytes(program)[size_t(rank)] - program.static_bytes[size_t(rank)];
  };
  const StageFootprint& f = footprints[0];
  EXPECT_EQ(f.static_bytes(), f.parameter_bytes + f.optimizer_bytes);
  EXPECT_EQ(peak(4, 0), 4 * f.saved_bytes + f.first_backward_workspace_bytes);
  EXPECT_EQ(peak(5, 0), f.late_gradient_bytes + 4 * f.saved_bytes + f.backward_workspace_bytes);
  const StageFootprint& last = footprints[3];
  EXPECT_EQ(peak(1, 3), last.saved_bytes + last.first_backward_workspace_bytes);
  EXPECT_EQ(peak(2, 3), last.late_gradient_bytes + last.saved_bytes + last.backward_workspace_bytes);
}

TEST(Lower, TiedEmbeddingIsReducedOnlyBetweenApartStages) {
  Layout layout;
  layout.pipeline = 2;
  auto footprints = test::distinct_footprints(2);
  footprints.front().tied_embedding_bytes = footprints.back().tied_embedding_bytes = 4096;
  const StepProgram program = lower(layout, find_schedule("1f1b", "t").generate(2, 1, 2), footprints);
  const auto found = std::find_if(program.instructions.begin(), program.instructions.end(),
                                  [](auto& i) { return i.kind == InstructionKind::reduce_tied_embedding; });
  ASSERT_NE(found, program.instructions.end());
  EXPECT_EQ(found->bytes, 4096);
  EXPECT_EQ(found->lane_count, 2);
}

TEST(Lower, PeaksOfASchedulesMomentsAreTheProgramsPeaks) {
  std::vector<Case> all = cases();
  for (const int p : {1, 2, 4}) {
    for (const int m : {p, 3 * p, 16}) all.push_back({"interleaved", p, 6, m, 1});  // more than have moments
  }
  for (const Case& c : all) {
    const Schedule schedule =
        find_schedule(c.schedule, "test").generate(c.pipeline, c.chunks, c.micro_batches);
    auto footprints = test::distinct_footprints(c.pipeline * c.chunks);
    for (size_t s = 0; s < footprints.size(); ++s) {
      footprints[s].late_gradient_bytes = int64_t(s % 3) * 700;
      // Late gradients may be larger than the workspace of the backward that makes them.
      footprints[s].first_backward_workspace_bytes = s % 2 == 0 ? 40 : footprints[s].late_gradient_bytes + 40;
    }
    Layout layout;
    layout.pipeline = c.pipeline;
    layout.chunks = c.chunks;
    const StepProgram program = lower(layout, schedule, footprints);
    const std::vector<int64_t> expected = peak_bytes(program);
    EXPECT_EQ(peak_bytes(schedule, footprints), expected) << c.schedule;
    const ActivationPeaks peaks(std::make_shared<const Schedule>(schedule));
    EXPECT_EQ(peaks.peak_bytes(footprints), expected) << c.schedule;
    for (size_t r = 0; r < expected.size(); ++r) {
      EXPECT_TRUE(peaks.rank_fits(r, footprints, expected[r])) << c.schedule;
      EXPECT_FALSE(peaks.rank_fits(r, footprints, expected[r] - 1)) << c.schedule;
    }
    // The stages of a rank alike.
    std::vector<uint16_t> rank_of_stage(schedule.rank_of_stage.begin(), schedule.rank_of_stage.end());
    std::vector<StageFootprint> alike;
    for (const uint16_t rank : rank_of_stage) alike.push_back(footprints[rank]);
    EXPECT_EQ(peaks.peak_bytes({footprints, rank_of_stage}), peak_bytes(schedule, alike)) << c.schedule;
  }
}

// Of random footprints, so that each moment of a rank is the fullest for some of them.
std::vector<std::vector<int64_t>> peaks_of_random_stages(const Schedule& schedule) {
  std::mt19937 random(7);
  const auto bytes = [&] { return int64_t(random() % 1000); };
  std::vector<std::vector<int64_t>> peaks;
  for (int i = 0; i < 6; ++i) {
    std::vector<StageFootprint> footprints(schedule.rank_of_stage.size());
    for (StageFootprint& f : footprints) {
      f.saved_bytes = bytes();
      f.saved_for_weight_bytes = bytes();
      f.boundary_bytes = bytes();
      f.forward_workspace_bytes = bytes();
      f.backward_workspace_bytes = bytes();
      f.input_gradient_workspace_bytes = bytes();
      f.weight_gradient_workspace_bytes = bytes();
      f.gradient_bytes = f.late_gradient_bytes = bytes();
      f.first_backward_workspace_bytes = 2 * bytes();
    }
    peaks.push_back(peak_bytes(schedule, footprints));
  }
  return peaks;
}

TEST(Lower, SchedulesThatRepeatHoldNoMoreInMoreRounds) {
  int compared = 0;
  for (const ScheduleEntry& entry : schedule_catalog()) {
    if (!entry.repeats) continue;
    for (const int p : {2, 3, 4, 5, 8, 12}) {
      for (int v = entry.min_chunks; v <= std::min(entry.max_chunks, 8); v += 2) {
        for (int m = 3 * p + 1; m <= 9 * p; m += m < 5 * p ? 1 : std::max(1, p / 3)) {
          const auto few = int(equivalent_micro_batches(entry, p, m));
          if (few == m) continue;
          ++compared;
          ASSERT_LT(few, 4 * p);
          ASSERT_EQ(peaks_of_random_stages(entry.generate(p, v, m)),
                    peaks_of_random_stages(entry.generate(p, v, few)))
              << entry.name << " of " << p << " ranks, " << v << " chunks, " << m << " micro-batches";
        }
      }
    }
  }
  EXPECT_GT(compared, 1000);
}

TEST(Lower, DigestNoticesEveryChange) {
  const StepProgram base = program_for({"1f1b", 4, 1, 8, 1});
  std::set<std::string> digests{program_digest(base)};
  digests.insert(program_digest(program_for({"gpipe", 4, 1, 8, 1})));
  digests.insert(program_digest(program_for({"1f1b", 4, 1, 7, 1})));
  digests.insert(program_digest(program_for({"1f1b", 4, 1, 8, 2})));
  StepProgram other = base;
  other.wait_table.back() = 0;
  digests.insert(program_digest(other));
  other = base;
  other.instructions[3].acquire_bytes += 1;
  digests.insert(program_digest(other));
  EXPECT_EQ(digests.size(), 6u);
  EXPECT_EQ(program_digest(base), program_digest(program_for({"1f1b", 4, 1, 8, 1})));
}

TEST(Lower, ProgramDefectsAreFound) {
  StepProgram program = program_for({"1f1b", 2, 1, 2, 1});
  program.wait_table.back() = program.size() - 1;  // the last instruction waits on itself
  EXPECT_NE(find_defect(program)->find("not earlier"), std::string::npos);
}

TEST(Lower, RefusesADefectiveScheduleAndAWrongLayout) {
  Layout layout;
  layout.pipeline = 2;
  Schedule schedule = find_schedule("1f1b", "t").generate(2, 1, 2);
  EXPECT_THROW(lower(layout, schedule, test::distinct_footprints(3)), UserError);
  schedule.rows[1].pop_back();
  EXPECT_THROW(lower(layout, schedule, test::distinct_footprints(2)), UserError);
}

}  // namespace
}  // namespace mpt
