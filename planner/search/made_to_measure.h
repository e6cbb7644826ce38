// SPDX-License-Identifier: Apache-2.0
#pragma once

// The schedule that is made for one layout: the best of the named ones with its placement, and of those that
// list scheduling builds from the layout's own durations within its memory. Never slower than a named one
// that fits.

#include <limits>
#include <memory>
#include <optional>

#include "planner/cost/step_cost.h"
#include "planner/search/problem.h"
#include "planner/search/program_cache.h"

namespace mpt::planner {

/// Schedules of more stages x micro-batches are left to the named ones: building one would take seconds.
inline constexpr int64_t kMostGeneratedCells = 20'000;

/// With more chunks per rank than this the best named schedule is taken as it is: list scheduling of many
/// small chunks costs too much for what it gains.
inline constexpr int64_t kMostListedChunks = 2;

struct MadeSchedule {
  std::shared_ptr<const Schedule> schedule;
  std::shared_ptr<const StepProgram> program;  // its structure; bytes are not part of it
  int64_t peak_bytes = 0;
  double step_time_s = 0.0;  // infinite where it is more than was asked for
};

/// Nothing if no schedule of the layout's placement fits into memory. One that would not be faster than
/// `slowest_s` need not be the best.
std::optional<MadeSchedule> make_to_measure(const SearchProblem& problem, const Layout& layout,
                                            const std::vector<StageFootprint>& footprints,
                                            const StepCost& cost, ProgramCache& programs,
                                            double slowest_s = std::numeric_limits<double>::infinity());

}  // namespace mpt::planner
