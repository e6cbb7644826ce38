// SPDX-License-Identifier: Apache-2.0

// torchtitan's log: tokens per second and GPU, torchtitan/components/metrics.py.

#include "frameworks/registry.h"

namespace mpt::frameworks {

std::vector<double> torchtitan_steps(const std::vector<std::string>& lines, const Plan& plan) {
  std::vector<double> times = numbers_behind(lines, "tps:");
  for (double& time : times)
    time = double(plan.workload.tokens_per_step()) / (time * double(plan.layout.ranks()));
  return times;
}

}  // namespace mpt::frameworks
