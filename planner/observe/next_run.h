// SPDX-License-Identifier: Apache-2.0
#pragma once

// The value of another run: the choice among layouts after it is better than the choice now.

#include <Eigen/Core>
#include <span>
#include <vector>

#include "planner/observe/correction.h"

namespace mpt::planner {

/// The layouts to choose from are the first points of a posterior. `log_times`: of their predictions.
using LogTimes = Eigen::VectorXd;

/// The expected decrease of the choice's log time after a run of `point`, averaged over the run's possible
/// results: knowledge gradient (Frazier, Powell and Dayanik 2009), exact.
double worth_of_run(const LogTimes& log_times, const Posterior& posterior, size_t point);
/// The share by which `choice` takes longer than the fastest, in each draw of all layouts' times; and its sum
/// over the draws that each layout wins. The same input gives the same result. If there are `scales`, the
/// errors of each draw are multiplied by one of them, each used equally often.
struct DrawnLosses {
  std::vector<double> losses;     // ascending
  std::vector<double> by_winner;  // by layout

  double mean() const;
};
DrawnLosses draw_losses(const LogTimes& log_times, const Posterior& posterior, size_t choice,
                        size_t draws = 2000, std::span<const double> scales = {});

}  // namespace mpt::planner
