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

/// How far apart measurements of one thing lie.
struct Repetition {
  int repeated = 0;         // things that were measured twice or more
  double difference = 0.0;  // relative; median over them of the mean over pairs
  /// The standard deviation of one measurement: half of all pairs of normally distributed values lie closer
  /// than 0.954 of it.
  double scatter() const { return difference / 0.954; }
};
/// `values` of each thing. Equal ones are one measurement that was published twice.
Repetition repetition_of(const std::vector<std::vector<double>>& values);

/// The tau that predictions without error would be expected to have, were each measurement off by a normally
/// distributed share of standard deviation `scatter`: two whose logarithms lie d apart keep their order with
/// probability (1 + erf(d / (2 scatter))) / 2.
double reachable_tau(const std::vector<double>& predicted, double scatter);

}  // namespace mpt::planner
