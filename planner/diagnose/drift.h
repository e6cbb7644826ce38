// SPDX-License-Identifier: Apache-2.0
#pragma once

// Drift: step times that grow during a run. A median hides it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt::planner {

struct StepTime {
  int64_t step = 0;
  double seconds = 0.0;
};

struct Drift {
#include "generated/Drift.inc"
};

/// Fits step times, in order, as constant up to some step, then growing evenly or at once. Nothing if that
/// explains little of the differences, or if steps grow by less than a tenth.
std::optional<Drift> find_drift(const std::vector<StepTime>& steps);

/// "Step time grows from 10.1 s to 128 s, by 600 ms in each step from step 12 on."
std::string describe_drift(const Drift& drift);

}  // namespace mpt::planner
