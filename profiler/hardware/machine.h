// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "profiler/hardware/profile.h"

namespace mpt::profiler {

/// Name, usable cores and memory of the machine that this runs on.
MachineDescription describe_machine();

}  // namespace mpt::profiler
