// SPDX-License-Identifier: Apache-2.0
#pragma once

// The simulator: gives each instruction of a StepProgram a start and an end. It uses lanes and waits, and no
// schedules.

#include <span>
#include <vector>

#include "core/step_program.h"
#include "core/timeline.h"

namespace mpt {
struct Plan;
}

namespace mpt::planner {

/// One loop in id order: start = latest end of the waits and of the last instruction in each of its lanes.
Timeline simulate(const StepProgram& program, std::span<const double> durations_s);

/// CPU ranks that share cores. Each representative compute lane counts for `ranks_per_lane` ranks that do the
/// same at the same time. Each of n ranks that compute at once runs at rate[n - 1] of one alone. Beyond the
/// end of the table the total rate stays constant.
struct Contention {
  std::vector<double> rate_by_active_ranks;
  int64_t ranks_per_lane = 1;

  double rate(int64_t active_lanes) const;
  /// The best rate of one of up to `lanes` lanes, and the best total rate of all lanes that compute.
  struct Best {
    double of_one = 0.0, of_all = 0.0;
  };
  Best best(int64_t lanes) const;
};

/// As above, with compute slowed by contention: compute instructions advance by the current rate, all others
/// by their duration. Equal to the plain simulation, to the bit, if no rate is below 1.
Timeline simulate(const StepProgram& program, std::span<const double> times_s, const Contention& contention);

/// A plan's durations in its program: its predicted step.
Timeline simulate(const Plan& plan, const StepProgram& program);

/// Step time, or infinity as soon as some rank cannot end by `limit_s`: the work it has done plus the rest of
/// its work is too much. A search that knows a faster step need not finish a slower one. `timeline` receives
/// the times; if the simulation ends early, it ends with the instruction that exceeded the limit.
double step_time_within(const StepProgram& program, std::span<const double> durations_s,
                        const Contention& contention, double limit_s, Timeline& timeline);

}  // namespace mpt::planner
