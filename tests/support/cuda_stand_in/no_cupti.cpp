// SPDX-License-Identifier: Apache-2.0

// In place of what speaks to CUPTI, which has no stand-in.

#include "runtime/device/backend.h"

namespace mpt::runtime {

std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason) {
  reason = "CUDA's stand-in has no CUPTI";
  return nullptr;
}

}  // namespace mpt::runtime
