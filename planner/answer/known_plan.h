// SPDX-License-Identifier: Apache-2.0
#pragma once

// Questions about a plan that somebody holds: they are answered with the prices that it was made with.

#include <memory>
#include <string>

#include "core/plan.h"
#include "planner/request/resolve.h"

namespace mpt::planner {

struct KnownPlan {
  Plan plan;
  std::string name;              // in errors
  std::string profile, kernels;  // the file of its prices; empty where the catalog has them
};

/// Whether the prices are those of a file that is not given.
bool lacks_prices(const KnownPlan& known);
/// The plan's request on its own devices and within its own memory, limited to `bounds`.
PlanRequest request_again(const KnownPlan& known, SearchBounds bounds);
/// The problem of that request. Throws UserError where the prices are those of another file.
std::unique_ptr<Resolved> problem_of(const KnownPlan& known, const SearchBounds& bounds);
/// Why the plan is not one of the layouts that `words` name, such as "tp=8,pp=4": lines for a terminal.
/// `resolved`: problem_of() those layouts. Throws UserError.
std::string why_not(const KnownPlan& known, const Resolved& resolved, const std::string& words);

}  // namespace mpt::planner
