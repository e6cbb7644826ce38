// SPDX-License-Identifier: Apache-2.0
#pragma once

// Questions about a plan that the user has. They are answered with the prices that the plan was made with.

#include <memory>
#include <string>

#include "core/plan.h"
#include "planner/request/resolve.h"

namespace mpt::planner {

struct KnownPlan {
  Plan plan;
  std::string name;              // in errors
  std::string profile, kernels;  // the file of its prices; empty if the catalog has them
};

/// Whether the prices are from a file that was not given.
bool lacks_prices(const KnownPlan& known);
/// The plan's request on its devices and within its memory, limited to `bounds`.
PlanRequest request_again(const KnownPlan& known, SearchBounds bounds);
/// The problem of that request. Throws UserError if the prices are from another file.
std::unique_ptr<Resolved> problem_of(const KnownPlan& known, const SearchBounds& bounds);
/// Why the plan is not one of the layouts that `words` name, such as "tp=8,pp=4": lines for a terminal.
/// `resolved`: problem_of() those layouts. Throws UserError.
std::string why_not(const KnownPlan& known, const Resolved& resolved, const std::string& words);

}  // namespace mpt::planner
