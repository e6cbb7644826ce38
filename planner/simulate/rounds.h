// SPDX-License-Identifier: Apache-2.0
#pragma once

// Steps of many micro-batches by a few. Where the middle of a schedule repeats (ScheduleEntry::repeats), a
// program of a few rounds tells the time and the critical path of one with more. A round has as many
// micro-batches as the pipeline has ranks.

#include <vector>

#include "core/step_program.h"
#include "core/timeline.h"

namespace mpt::planner {

/// With fewer rounds the middle of a program is too short.
inline constexpr int64_t kFewestRounds = 10;

/// Bounds of the step with `rounds` more rounds, where no lane slows another. `timeline`: of the whole step
/// of at least kFewestRounds. The ends of a round follow from those of the one before by sums and maxima: if
/// they all move by d or more from one round to the next, they do so ever after, and likewise by d or less
/// (Baccelli et al. 1992, Synchronization and Linearity, section 2.5.1). Both are the step time once all move
/// by one d.
struct RepeatedStep {
  double least_s = 0.0, most_s = 0.0;
};
RepeatedStep with_more_rounds(const StepProgram& program, const Timeline& timeline, int64_t rounds);

/// An instruction on a critical path, and how many like it the path has: of other micro-batches, too.
struct PathPart {
  InstructionId id = 0;
  int64_t times = 1;
};
/// The path that makes `last` as late as it is: each instruction starts when the one before ends. `more`: the
/// step has so many micro-batches beyond the program's, in whole rounds. Then a part of the path is
/// repeated for them, where no backward is split: one in the middle that begins and ends with the same kind
/// of instruction. The result is a path through that step, or a part of one, for any durations.
std::vector<PathPart> critical_path(const StepProgram& program, const Timeline& timeline, InstructionId last,
                                    int64_t more = 0);

}  // namespace mpt::planner
