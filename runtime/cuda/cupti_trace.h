// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "runtime/device/kernel_trace.h"

namespace mpt::runtime {

/// Kernels through CUPTI's activity records, which need no administrator rights. One trace per process; it
/// stays enabled, for some versions of CUPTI do not survive being disabled.
std::unique_ptr<KernelTrace> make_cupti_trace(std::string& reason);

}  // namespace mpt::runtime
