// SPDX-License-Identifier: Apache-2.0

// Megatron-LM's log: training_log() in megatron/training/training.py.

#include "frameworks/registry.h"

namespace mpt::frameworks {

std::vector<double> megatron_core_steps(const std::vector<std::string>& lines, const Plan&) {
  std::vector<double> times = numbers_behind(lines, "elapsed time per iteration (ms):");
  for (double& time : times) time *= 1e-3;
  return times;
}

}  // namespace mpt::frameworks
