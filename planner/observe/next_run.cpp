// SPDX-License-Identifier: Apache-2.0
#include "planner/observe/next_run.h"

#include <Eigen/Cholesky>
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <random>

namespace mpt::planner {
namespace {

double share_below(double z) { return normal_share_below(z, 0.0, 1.0); }
double density(double z) { return std::exp(-0.5 * z * z) / std::sqrt(2.0 * std::numbers::pi); }

// Normal values of mean 0 and standard deviation 1 (Box and Muller 1958), always the same ones. Distributions
// of the standard library may differ between implementations.
class NormalDraws {
 public:
  double operator()() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  double uniform() { return double(random_() >> 11U) * 0x1p-53; }

  std::mt19937_64 random_{20240229};
};

// The mean of one layout as a linear function of a run's result, in standard deviations of the result.
struct Line {
  double at_zero = 0.0, slope = 0.0;
};

// The lowest lines from left to right, and the point where each begins.
struct Envelope {
  std::vector<Line> lines;
  std::vector<double> begins;
};

Envelope lower_envelope(std::vector<Line> lines) {
  std::sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    return a.slope != b.slope ? a.slope > b.slope : a.at_zero < b.at_zero;
  });
  Envelope lowest;
  for (const Line& line : lines) {
    if (!lowest.lines.empty() && lowest.lines.back().slope == line.slope) continue;
    double begin = -std::numeric_limits<double>::infinity();
    while (!lowest.lines.empty()) {
      const Line& last = lowest.lines.back();
      begin = (line.at_zero - last.at_zero) / (last.slope - line.slope);
      if (begin > lowest.begins.back()) break;
      lowest.lines.pop_back();
      lowest.begins.pop_back();
      begin = -std::numeric_limits<double>::infinity();
    }
    lowest.lines.push_back(line);
    lowest.begins.push_back(begin);
  }
  return lowest;
}

double expected_lowest(const Envelope& lowest) {
  double sum = 0.0;
  for (size_t i = 0; i < lowest.lines.size(); ++i) {
    const double from = lowest.begins[i];
    const double to =
        i + 1 < lowest.lines.size() ? lowest.begins[i + 1] : std::numeric_limits<double>::infinity();
    sum += lowest.lines[i].at_zero * (share_below(to) - share_below(from)) +
           lowest.lines[i].slope * (density(from) - density(to));
  }
  return sum;
}

}  // namespace

double worth_of_run(const LogTimes& log_times, const Posterior& posterior, size_t point) {
  const double spread = std::sqrt(posterior.run_variance(point));
  std::vector<Line> lines;
  double now = std::numeric_limits<double>::infinity();
  for (Eigen::Index i = 0; i < log_times.size(); ++i) {
    const double mean = log_times(i) + posterior.mean(size_t(i));
    now = std::min(now, mean);
    lines.push_back({mean, posterior.covariance()(i, Eigen::Index(point)) / spread});
  }
  return std::max(0.0, now - expected_lowest(lower_envelope(std::move(lines))));
}

double DrawnLosses::mean() const {
  return std::accumulate(losses.begin(), losses.end(), 0.0) / double(losses.size());
}

DrawnLosses draw_losses(const LogTimes& log_times, const Posterior& posterior, size_t choice, size_t draws,
                        std::span<const double> scales) {
  // A smaller loss is a rounding error.
  constexpr double kSame = 1e-7;
  const Eigen::Index n = log_times.size();
  // A root of the covariance, which may not have full rank. The triangular root is used: eigenvectors of
  // equal eigenvalues are not unique and would depend on the machine.
  const Eigen::MatrixXd same = kSame * kSame * Eigen::MatrixXd::Identity(n, n);
  const Eigen::MatrixXd root = (posterior.covariance().topLeftCorner(n, n) + same).llt().matrixL();
  NormalDraws normal;
  Eigen::VectorXd z(n);
  DrawnLosses drawn{{}, std::vector<double>(size_t(n), 0.0)};
  while (drawn.losses.size() < draws) {
    for (Eigen::Index i = 0; i < n; ++i) z(i) = normal();
    const double scale = scales.empty() ? 1.0 : scales[drawn.losses.size() % scales.size()];
    const Eigen::VectorXd times = log_times + posterior.means().head(n) + scale * (root * z);
    Eigen::Index winner = 0;
    const double lost = std::expm1(times(Eigen::Index(choice)) - times.minCoeff(&winner));
    drawn.losses.push_back(lost > kSame ? lost : 0.0);
    drawn.by_winner[size_t(winner)] += drawn.losses.back();
  }
  std::sort(drawn.losses.begin(), drawn.losses.end());
  return drawn;
}

}  // namespace mpt::planner
