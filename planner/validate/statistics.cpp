// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mpt::planner {

ErrorSummary summarise_errors(std::vector<double> errors) {
  ErrorSummary s;
  s.count = int(errors.size());
  if (errors.empty()) return s;
  for (double& e : errors) e = std::abs(e);
  std::sort(errors.begin(), errors.end());
  s.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / double(errors.size());
  const size_t middle = errors.size() / 2;
  s.median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2.0;
  s.worst = errors.back();
  return s;
}

double kendall_tau(const std::vector<std::pair<double, double>>& pairs, double resolution) {
  double agreement = 0.0, in_measured = 0.0, in_predicted = 0.0;
  for (size_t i = 0; i < pairs.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      const double a = pairs[i].first - pairs[j].first, b = pairs[i].second - pairs[j].second;
      if (resolution > 0.0 && std::abs(a) <= resolution * std::max(pairs[i].first, pairs[j].first)) continue;
      const int sign = (a > 0 ? 1 : a < 0 ? -1 : 0) * (b > 0 ? 1 : b < 0 ? -1 : 0);
      agreement += sign;
      in_measured += a != 0.0 ? 1.0 : 0.0;
      in_predicted += b != 0.0 ? 1.0 : 0.0;
    }
  }
  const double scale = std::sqrt(in_measured * in_predicted);
  return scale > 0.0 ? agreement / scale : 0.0;
}

double reachable_tau(const std::vector<double>& predicted, double scatter) {
  double agreement = 0.0, pairs = 0.0, untied = 0.0;
  for (size_t i = 0; i < predicted.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      agreement += std::erf(std::abs(std::log(predicted[i] / predicted[j])) / (2.0 * scatter));
      pairs += 1.0;
      untied += predicted[i] != predicted[j] ? 1.0 : 0.0;
    }
  }
  const double scale = std::sqrt(pairs * untied);
  return scale > 0.0 ? agreement / scale : 0.0;
}

}  // namespace mpt::planner
