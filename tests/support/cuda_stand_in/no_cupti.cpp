// SPDX-License-Identifier: Apache-2.0

// In place of what speaks to CUPTI, which has no stand-in.

#include "runtime/cuda/cupti_counters.h"
#include "runtime/cuda/cupti_trace.h"

namespace mpt::runtime {
namespace {

constexpr const char* kReason = "CUDA's stand-in has no CUPTI";

}  // namespace

std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason) {
  reason = kReason;
  return nullptr;
}
std::unique_ptr<HardwareCounters> make_cupti_counters(const std::vector<CountedGpu>&, std::string& reason) {
  reason = kReason;
  return nullptr;
}

}  // namespace mpt::runtime
