// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/drift.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "reports/run_result.h"

namespace mpt::planner {
namespace {

constexpr size_t kFewestSteps = 8;
constexpr size_t kMostPoints = 64;
// Least number of points on each side of a break. Fewer are a pause, such as a checkpoint.
constexpr size_t kFewestPoints = 3;
// Most of the squared differences from the mean that a fit may leave. Breaks in noise leave over half.
constexpr double kMostLeft = 0.3;
constexpr double kLeastGrowth = 0.1;

struct Point {
  double step = 0.0, first_step = 0.0, seconds = 0.0;
};

// Medians of equal numbers of neighbouring steps. They ignore single slow steps.
std::vector<Point> points_of(const std::vector<StepTime>& steps) {
  const size_t count = std::clamp(steps.size() / 3, kFewestSteps, kMostPoints);
  std::vector<Point> points;
  for (size_t p = 0; p < count; ++p) {
    const size_t begin = p * steps.size() / count, end = (p + 1) * steps.size() / count;
    std::vector<double> seconds;
    double sum = 0.0;
    for (size_t i = begin; i < end; ++i) {
      seconds.push_back(steps[i].seconds);
      sum += double(steps[i].step);
    }
    points.push_back({sum / double(end - begin), double(steps[begin].step), reports::median(seconds)});
  }
  return points;
}

struct Fit {
  double before_s = 0.0, slope = 0.0, left = 0.0;  // left: squared differences
};

// Least squares of seconds = before + slope * x.
template <class F>
Fit fit(const std::vector<Point>& points, F&& x_of) {
  double sx = 0.0, sy = 0.0, sxx = 0.0, sxy = 0.0;
  const auto n = double(points.size());
  for (const Point& p : points) {
    const double x = x_of(p);
    sx += x, sy += p.seconds, sxx += x * x, sxy += x * p.seconds;
  }
  const double spread = sxx - sx * sx / n;
  Fit found;
  found.slope = spread > 0.0 ? (sxy - sx * sy / n) / spread : 0.0;
  found.before_s = (sy - found.slope * sx) / n;
  for (const Point& p : points) {
    const double wrong = p.seconds - found.before_s - found.slope * x_of(p);
    found.left += wrong * wrong;
  }
  return found;
}

}  // namespace

std::optional<Drift> find_drift(const std::vector<StepTime>& steps) {
  if (steps.size() < kFewestSteps) return std::nullopt;
  const std::vector<Point> points = points_of(steps);
  double least = kMostLeft * fit(points, [](const Point&) { return 0.0; }).left;
  std::optional<Drift> drift;
  for (size_t k = 0; k + kFewestPoints <= points.size(); ++k) {
    const double from = points[k].step;
    const Fit ramp = fit(points, [&](const Point& p) { return std::max(0.0, p.step - from); });
    if (ramp.left < least && ramp.slope > 0.0) {
      least = ramp.left;
      drift = Drift{int64_t(points[k].first_step), ramp.before_s,
                    ramp.before_s + ramp.slope * (points.back().step - from), ramp.slope};
    }
    if (k < kFewestPoints) continue;
    const Fit jump = fit(points, [&](const Point& p) { return p.step >= from ? 1.0 : 0.0; });
    if (jump.left < least && jump.slope > 0.0) {
      least = jump.left;
      drift = Drift{int64_t(points[k].first_step), jump.before_s, jump.before_s + jump.slope, 0.0};
    }
  }
  if (drift && drift->last_s < (1.0 + kLeastGrowth) * drift->before_s) return std::nullopt;
  return drift;
}

std::string describe_drift(const Drift& d) {
  const std::string grows =
      fmt::format("Step time grows from {} to {}", format_seconds(d.before_s), format_seconds(d.last_s));
  return d.slope_s > 0.0 ? fmt::format("{}, by {} in each step from step {} on.", grows,
                                       format_seconds(d.slope_s), d.from_step)
                         : fmt::format("{} at step {}.", grows, d.from_step);
}

}  // namespace mpt::planner
