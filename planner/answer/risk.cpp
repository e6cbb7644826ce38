// SPDX-License-Identifier: Apache-2.0
#include "planner/answer/recommend.h"

#include "planner/explain/confidence.h"

namespace mpt::planner {
namespace {

// A trial costs relatively more in a short training. This number is for a short one.
constexpr double kStepsOfTraining = 1000.0;
constexpr double kWorthATrial = 0.1;

}  // namespace

double expected_step_s(double fits, double first_s, double other_s) {
  const double trial_s = double(kTrialSteps) / kStepsOfTraining * first_s;
  return fits * first_s + (1.0 - fits) * (trial_s + other_s);
}

std::optional<WeighedRisk> weigh(const RankedLayout& safe, const std::vector<RankedLayout>& candidates) {
  std::optional<WeighedRisk> best;
  for (size_t n = 0; n < candidates.size(); ++n) {
    const auto& fits = candidates[n].confidence.fits;
    if (!may_not_fit(candidates[n].confidence)) continue;
    const double expected_s = expected_step_s(*fits, candidates[n].step_time_s, safe.step_time_s);
    const double gain = 1.0 - expected_s / safe.step_time_s;
    if (gain <= (best ? best->gain : kWorthATrial)) continue;
    best = WeighedRisk{int64_t(n), 1, expected_s, gain};
  }
  return best;
}

}  // namespace mpt::planner
