// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mpt::planner {
namespace {

double median(const std::vector<double>& sorted) {
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2.0;
}

}  // namespace

ErrorSummary summarise_errors(std::vector<double> errors) {
  ErrorSummary s;
  s.count = int(errors.size());
  if (errors.empty()) return s;
  for (double& e : errors) e = std::abs(e);
  std::sort(errors.begin(), errors.end());
  s.mean = std::accumulate(errors.begin(), errors.end(), 0.0) / double(errors.size());
  s.median = median(errors);
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

Repetition repetition_of(const std::vector<std::vector<double>>& values) {
  std::vector<double> differences;
  for (const std::vector<double>& of_one : values) {
    double sum = 0.0;
    int pairs = 0;
    for (size_t i = 0; i < of_one.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (of_one[i] == of_one[j]) continue;
        sum += std::abs(of_one[i] - of_one[j]) / (0.5 * (of_one[i] + of_one[j]));
        ++pairs;
      }
    }
    if (pairs > 0) differences.push_back(sum / pairs);
  }
  if (differences.empty()) return {};
  std::sort(differences.begin(), differences.end());
  return {int(differences.size()), median(differences)};
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
