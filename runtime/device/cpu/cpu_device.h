// SPDX-License-Identifier: Apache-2.0
#pragma once

// CpuDevice: one rank's memory and arithmetic on one CPU core. Used by one rank at a time; the transfer
// streams of that rank may allocate nothing. Only adamw() and convert() may be called by threads at once.

#include <memory>

#include "runtime/device/device.h"

namespace mpt::runtime {

std::unique_ptr<Device> make_cpu_device();

}  // namespace mpt::runtime
