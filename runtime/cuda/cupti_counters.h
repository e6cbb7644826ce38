// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/device/hardware_counters.h"

namespace mpt::runtime {

struct CountedGpu {
  int index = 0;  // in CUDA's order
  std::string uuid;
};

/// Counters of whole GPUs, whoever uses them, sampled by the GPUs themselves from now on (CUPTI's PM
/// sampling: work is neither repeated nor put in order). They need rights that plain users seldom have. Null
/// with the reason, and what to do about it, where no GPU can be sampled.
std::unique_ptr<HardwareCounters> make_cupti_counters(const std::vector<CountedGpu>& gpus,
                                                      std::string& reason);

}  // namespace mpt::runtime
