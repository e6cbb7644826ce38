// SPDX-License-Identifier: Apache-2.0
#pragma once

// What another run is worth: the choice among layouts after it is better than the choice now.

#include <Eigen/Core>
#include <span>
#include <vector>

#include "planner/observe/correction.h"

namespace mpt::planner {

/// Layouts to choose from are the first points of a posterior. `log_times`: of their predictions.
using LogTimes = Eigen::VectorXd;

/// What the choice's expected logarithm falls by once a run of `point` is known, on average over what it may
/// show: knowledge gradient (Frazier, Powell and Dayanik 2009), exact.
double worth_of_run(const LogTimes& log_times, const Posterior& posterior, size_t point);
/// By how much `choice` takes longer than the fastest, as a share, in each draw of all layouts' times; and
/// what that sums up to over the draws that each layout wins. The same input gives the same result. Errors of
/// a draw are times one of `scales` where there are some, each as often.
struct DrawnLosses {
  std::vector<double> losses;     // ascending
  std::vector<double> by_winner;  // by layout

  double mean() const;
};
DrawnLosses draw_losses(const LogTimes& log_times, const Posterior& posterior, size_t choice,
                        size_t draws = 2000, std::span<const double> scales = {});

}  // namespace mpt::planner
