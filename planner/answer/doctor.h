// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory doctor: the switches of a framework that reduce memory, with their savings and costs in time.

#include <string>

#include "planner/api.h"

namespace mpt::planner {

/// The rows of memory_switches.json for which the file of the problem's framework has words, "written".
Json memory_switches(const SearchProblem& problem);
/// `request` with the settings and bounds of a row.
PlanRequest request_with(const Json& row, const PlanRequest& request);

/// {"memory": memory_parts(), "device_bytes": ..., "alone": [...], "together": [...], "options": ""}.
/// "device_bytes": the memory of the GPU that the parts fill. "alone" has every switch in
/// the framework's file, largest saving first. "together" has the fastest combination of them that is likely
/// to fit, 9 in 10, each on top of those before it. If there is none, the likeliest. It is empty if the
/// layout is likely to fit. "options" has them for mpt-plan estimate --plan. A row has "option" of mpt-plan,
/// "written" in the framework's words, "changes" (the change of training: nothing, states or weights),
/// "saved_bytes" of the fullest rank, "added_s" to a step, "peak_bytes", "step_time_s", "fits", "likelihood"
/// that it fits, and "refusal" if the framework does not accept it here. `request`: the request that `now`
/// answers.
Json memory_doctor(const PlanRequest& request, const Estimated& now);
/// The answer as lines for a terminal; empty if there is no switch.
std::string describe_doctor(const Estimated& now, const Json& doctor);

}  // namespace mpt::planner
