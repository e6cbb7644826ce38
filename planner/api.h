// SPDX-License-Identifier: Apache-2.0
#pragma once

// The door to the planner. A request goes in, a plan comes out; nothing is printed.
//
//     mpt::PlanRequest request;
//     request.model.name = "llama3-70b";
//     request.cluster.name = "dgx-h100:8";
//     request.global_batch = 512;
//     const mpt::Plan plan = mpt::planner::plan(request);
//
// mpt-plan, its imports and comparisons call the same functions. Wrong requests throw UserError.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/layout.h"
#include "core/plan.h"
#include "core/plan_request.h"
#include "planner/request/resolve.h"
#include "planner/search/search.h"

namespace mpt::planner {

/// Called now and then during a search. `what`: which of several searches; empty for the main one. Returning
/// false ends it with the best layout so far.
using Watch = std::function<bool(const std::string& what, const SearchProgress& progress)>;

/// The recommended plan. Throws UserError that says what is in the way, and what helps, where no layout fits.
Plan plan(const PlanRequest& request, const Watch& watch = {});
Plan plan(const Resolved& resolved, const Watch& watch = {});

/// A plan, or why there is none.
struct PlanOrReason {
  std::optional<Plan> plan;
  std::string reason;
};
/// The recommended plans of several requests, for tables. Throws UserError for requests that are wrong in
/// themselves.
std::vector<PlanOrReason> compare(const std::vector<PlanRequest>& requests, const Watch& watch = {});

/// A layout that was asked for by name: `plan` says what it takes, whether it fits or not.
struct Estimated {
  std::unique_ptr<Resolved> resolved;
  Candidate candidate;
  Plan plan;
  std::optional<Rejection> refusal;  // why its framework cannot run it

  /// What it lacks to fit, as predicted, or by observed runs where they tell it. Nothing where it is as
  /// likely to fit as not.
  std::optional<Rejection> lacks() const;
  bool fits() const { return !lacks(); }
};
/// Prices `request.layout`, or without one the layout that the bounds name: what they leave out is 1, off or
/// what the rest leaves. A layout that somebody runs fits if it fits a GPU's memory to the last byte.
Estimated estimate(const PlanRequest& request);
/// Other layers in its stages with which a step is faster beyond a tie, fits as well, and the framework runs.
std::optional<OtherStages> faster_stages(const Estimated& estimated);
/// The layout that estimate() prices: a request's own, or that of its bounds. Not checked.
Layout layout_to_estimate(const Resolved& resolved);
/// With other constants of the cost model.
Estimated estimate(const PlanRequest& request, const Calibration& calibration);

/// Layouts that none beats in time, memory and number of GPUs.
struct Front {
  std::optional<Plan> fastest;  // nothing: no layout fits
  std::vector<RankedLayout> points;
  bool complete = true;
};
Front front(const Resolved& resolved, const Watch& watch = {});

/// The answer and the details behind it, as text for a terminal.
std::string explain(const Plan& plan);

}  // namespace mpt::planner
