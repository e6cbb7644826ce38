// SPDX-License-Identifier: Apache-2.0
#pragma once

// The table of schedules: name, requirements, paper, generator. Adding a schedule is one file in
// core/schedules/ and one row in schedule_catalog.cpp.

#include <string>
#include <vector>

#include "core/schedule.h"

namespace mpt {

/// Numbers of chunks from `from` to `to`; empty by default.
struct ChunkRange {
  int from = 1, to = 0;
  bool has(int chunks) const { return from <= chunks && chunks <= to; }
};

struct ScheduleEntry {
  std::string name;
  int min_chunks = 1, max_chunks = 1;
  std::string source;  // where the schedule is described
  Schedule (*generate)(int ranks, int chunks, int micro_batches);
  /// The same with `group` micro-batches through a chunk in turn, not `ranks`; null: it has no groups.
  Schedule (*generate_in_groups)(int ranks, int chunks, int micro_batches, int group) = nullptr;
  /// Whether input and weight gradients are separate actions.
  bool splits_backward = false;
  /// Rank of each stage: Schedule::rank_of_stage without generating the schedule.
  std::vector<int> (*placement)(int ranks, int chunks) = round_robin_placement;
  /// Made to measure: the planner builds it from a layout's durations and memory. `generate` builds it for
  /// equal stages without a limit.
  bool made_to_measure = false;
  /// Whether a search of a large space tries it first, to have good incumbents early.
  bool warm_start = false;
  /// Numbers of chunks per rank for which it holds the fewest micro-batches of all named schedules with the
  /// placement of a made-to-measure one.
  ChunkRange leanest = {};
  /// Whether its middle repeats with every round of micro-batches. More rounds then hold no more memory.
  bool repeats = true;
  /// Whether rank r of p ranks holds at most p - r micro-batches between their forward and their gradient.
  bool holds_one_round = false;
};

const std::vector<ScheduleEntry>& schedule_catalog();

/// The named schedule of the same placement that holds the fewest micro-batches. A made-to-measure schedule
/// fits wherever this one does.
const ScheduleEntry& leanest_schedule(const ScheduleEntry& entry, int chunks);

/// `equal_rounds`: PyTorch's interleaved classes deal m micro-batches to p ranks in max(1, m / p) rounds of
/// equal size. Otherwise groups have p micro-batches, and the last one may be smaller.
Schedule make_schedule(const ScheduleEntry& entry, int ranks, int chunks, int micro_batches, bool equal);

/// A smaller number of micro-batches with which every rank holds the same, in the same number of transfer
/// slots. A schedule that repeats: three rounds of the pipeline and the last, broken one.
int64_t equivalent_micro_batches(const ScheduleEntry& entry, int64_t ranks, int64_t micro_batches);

/// Throws UserError naming `where` and the nearest known schedule.
const ScheduleEntry& find_schedule(const std::string& name, const std::string& where);
std::vector<std::string> schedule_names();

}  // namespace mpt
