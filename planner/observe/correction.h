// SPDX-License-Identifier: Apache-2.0
#pragma once

// The correction of predictions by observed runs. The logarithm of measured over predicted is a weighted sum
// of features of the prediction, plus a term of each layout, plus an error of measurement. Weights and terms
// are normal with mean 0: a Gaussian process (Rasmussen and Williams 2006, chapter 2) with covariance
//
//     sum over f of spread_f^2 x_f y_f  +  layout^2 [same layout]
//
// between points x and y. An observation changes all points at once, by one update of rank one.

#include <Eigen/Core>
#include <string>
#include <vector>

namespace mpt::planner {

/// Standard deviations of the prior.
struct CorrectionPrior {
  std::vector<double> weights;  // by feature
  double layout = 0.0;          // of the separate term of a layout
  double measurement = 0.0;     // of one measurement
};

/// A quantity to estimate: a layout's correction, or with an empty name a sum of weights alone.
struct CorrectedPoint {
  std::vector<double> features;
  std::string layout;
};

/// The joint estimate of all points. Values are logarithms of measured over predicted.
class Posterior {
 public:
  Posterior(const std::vector<CorrectedPoint>& points, const CorrectionPrior& prior);

  /// A run of that point gave `value`.
  void observe(size_t point, double value);
  /// A run of that point would have given at least `value`. The posterior is approximated by the normal
  /// distribution with the same first two moments (Minka 2001).
  void observe_at_least(size_t point, double value);
  /// A run of that point would have given at most `value`; the same approximation.
  void observe_at_most(size_t point, double value);

  double mean(size_t point) const { return mean_(Eigen::Index(point)); }
  double variance(size_t point) const { return covariance_(Eigen::Index(point), Eigen::Index(point)); }
  /// Variance of a new run, including the error of measurement.
  double run_variance(size_t point) const { return variance(point) + noise_; }
  const Eigen::VectorXd& means() const { return mean_; }
  const Eigen::MatrixXd& covariance() const { return covariance_; }
  double noise_variance() const { return noise_; }

 private:
  // Moves a run's mean by `shift` of its standard deviations, and multiplies its variance by 1 - `shrink`.
  void update(size_t point, double shift, double shrink);

  Eigen::VectorXd mean_;
  Eigen::MatrixXd covariance_;
  double noise_;
};

/// Probability that a normal variable with that mean and variance is at most `value`.
double normal_share_below(double value, double mean, double variance);

}  // namespace mpt::planner
