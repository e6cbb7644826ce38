// SPDX-License-Identifier: Apache-2.0
#pragma once

// The memory doctor: which switches of a framework take less memory, by how much, and what they cost.

#include <string>

#include "planner/api.h"

namespace mpt::planner {

/// The rows of memory_switches.json that the file of a problem's framework has words for, "written".
Json memory_switches(const SearchProblem& problem);
/// `request` with what a row says of it.
PlanRequest request_with(const Json& row, const PlanRequest& request);

/// {"alone": [...], "together": [...]}: every switch that the framework's file names, those that save most
/// first; and of these one on top of the other until the layout fits, empty where it does. A row has "option"
/// of mpt-plan, "written" in the framework's own words, "changes" (what is trained otherwise: nothing, states
/// or weights), "saved_bytes" of the fullest rank, "added_s" to a step, "peak_bytes", "step_time_s", "fits",
/// and "refusal" where the framework does not take it here. `request`: what `now` answers.
Json memory_doctor(const PlanRequest& request, const Estimated& now);
/// In lines for a terminal; nothing where there is no switch.
std::string describe_doctor(const Estimated& now, const Json& doctor);

}  // namespace mpt::planner
