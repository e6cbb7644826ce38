// SPDX-License-Identifier: Apache-2.0
#pragma once

// Drift: step times that grow while a run goes on. A median hides it.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace mpt::planner {

struct StepTime {
  int64_t step = 0;
  double seconds = 0.0;
};

struct Drift {
  int64_t from_step = 0;  // the first slower one
  double before_s = 0.0;  // of a step until then
  double last_s = 0.0;    // of the last steps
  double slope_s = 0.0;   // more in each step; 0 where all of it came at once
};

/// Fits step times, in order, as constant up to some step and growing evenly or at once from there on.
/// Nothing where that explains little of how they differ, or where they grow by less than a tenth.
std::optional<Drift> find_drift(const std::vector<StepTime>& steps);

/// "Step time grows from 10.1 s to 128 s, by 600 ms in each step from step 12 on."
std::string describe_drift(const Drift& drift);

}  // namespace mpt::planner
