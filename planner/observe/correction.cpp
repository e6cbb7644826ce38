// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/correction.h"

#include <cmath>
#include <numbers>

namespace mpt::planner {
namespace {

double covariance_of(const CorrectedPoint& a, const CorrectedPoint& b, const CorrectionPrior& prior) {
  double sum = !a.layout.empty() && a.layout == b.layout ? prior.layout * prior.layout : 0.0;
  for (size_t f = 0; f < prior.weights.size(); ++f)
    sum += prior.weights[f] * prior.weights[f] * a.features[f] * b.features[f];
  return sum;
}

// For the standard normal distribution: the density at x over the share above x. For large x that share is 0.
double hazard(double x) {
  constexpr double kFar = 25.0;
  if (x > kFar) return x + 1.0 / x;
  const double above = 0.5 * std::erfc(x / std::numbers::sqrt2);
  return std::exp(-0.5 * x * x) / std::sqrt(2.0 * std::numbers::pi) / above;
}

}  // namespace

Posterior::Posterior(const std::vector<CorrectedPoint>& points, const CorrectionPrior& prior)
    : mean_(Eigen::VectorXd::Zero(Eigen::Index(points.size()))),
      covariance_(Eigen::Index(points.size()), Eigen::Index(points.size())),
      noise_(prior.measurement * prior.measurement) {
  for (size_t i = 0; i < points.size(); ++i)
    for (size_t j = 0; j <= i; ++j) {
      const double c = covariance_of(points[i], points[j], prior);
      covariance_(Eigen::Index(i), Eigen::Index(j)) = covariance_(Eigen::Index(j), Eigen::Index(i)) = c;
    }
}

void Posterior::update(size_t point, double shift, double shrink) {
  const double run = run_variance(point);
  const Eigen::VectorXd with_run = covariance_.col(Eigen::Index(point));
  mean_ += with_run * (shift / std::sqrt(run));
  covariance_ -= with_run * with_run.transpose() * (shrink / run);
}

void Posterior::observe(size_t point, double value) {
  update(point, (value - mean(point)) / std::sqrt(run_variance(point)), 1.0);
}

void Posterior::observe_at_least(size_t point, double value) {
  const double x = (value - mean(point)) / std::sqrt(run_variance(point));
  const double h = hazard(x);
  update(point, h, h * (h - x));
}

void Posterior::observe_at_most(size_t point, double value) {
  const double x = (mean(point) - value) / std::sqrt(run_variance(point));
  const double h = hazard(x);
  update(point, -h, h * (h - x));
}

double normal_share_below(double value, double mean, double variance) {
  return 0.5 * std::erfc((mean - value) / std::sqrt(2.0 * variance));
}

}  // namespace mpt::planner
