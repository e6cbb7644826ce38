// SPDX-License-Identifier: Apache-2.0
#pragma once

// Statistics of errors and of orders.

#include <utility>
#include <vector>

namespace mpt::planner {

/// Of the absolute values of relative errors.
struct ErrorSummary {
  int count = 0;
  double mean = 0.0, median = 0.0, worst = 0.0;
};
ErrorSummary summarise_errors(std::vector<double> errors);

/// Kendall's tau-b between measured and predicted (Kendall 1945, Biometrika 33): pairs in the same order less
/// pairs in the opposite, over the geometric mean of the pairs that are not tied in either. 1: the same
/// order. 0 without such pairs. Pairs whose measured values lie within `resolution` of each other, as a share
/// of the larger, are left out.
double kendall_tau(const std::vector<std::pair<double, double>>& measured_and_predicted,
                   double resolution = 0.0);

/// The tau that predictions without error would be expected to have, were each measurement off by a normally
/// distributed share of standard deviation `scatter`: two whose logarithms lie d apart keep their order with
/// probability (1 + erf(d / (2 scatter))) / 2.
double reachable_tau(const std::vector<double>& predicted, double scatter);

}  // namespace mpt::planner
