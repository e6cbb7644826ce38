// SPDX-License-Identifier: Apache-2.0
#pragma once

// The programming interface of the planner. A request goes in, a plan comes out; nothing is printed.
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
#include "planner/search/search_result.h"

namespace mpt::planner {

/// Called repeatedly during a search. `what`: which of several searches; empty for the main one. Returning
/// false ends the search with the best layout so far.
using Watch = std::function<bool(const std::string& what, const SearchProgress& progress)>;

/// No layout fits: obstacle and remedy, and the layout that lacks least memory.
struct NothingFits : UserError {
  NothingFits(Problem problem, Layout layout) : UserError(std::move(problem)), nearest(std::move(layout)) {}
  Layout nearest;
};

/// The recommended plan. Throws UserError with obstacle and remedy if no layout fits: NothingFits if memory
/// is the obstacle.
Plan plan(const PlanRequest& request, const Watch& watch = {});
/// With --or-nodes, `resolved` is left with half of the time limit: the other half was for fewer nodes.
Plan plan(Resolved& resolved, const Watch& watch = {});

/// A plan, or the reason why there is none.
struct PlanOrReason {
  std::optional<Plan> plan;
  std::string reason;
};
/// The recommended plans of several requests, for tables. Throws
/// UserError for invalid requests.
std::vector<PlanOrReason> compare(const std::vector<PlanRequest>& requests, const Watch& watch = {});

/// A layout that the user named. `plan` has its prediction, whether it fits or not.
struct Estimated {
  std::unique_ptr<Resolved> resolved;
  Candidate candidate;
  Plan plan;
  std::optional<Rejection> refusal;  // why its framework cannot run it

  /// The resource that it lacks to fit, as predicted, or by observed runs if they show it. Nothing if it fits
  /// with a probability of at least one half.
  std::optional<Rejection> lacks() const;
  bool fits() const { return !lacks(); }
};
/// Prices `request.layout`, or without one the layout that the bounds name (layout_of_bounds()). A layout
/// that somebody runs fits if it fits into the GPU's memory without any margin.
Estimated estimate(const PlanRequest& request);
/// Other layers per stage: faster by more than a tie, fitting as well, and run by the framework. Or nothing.
std::optional<OtherStages> faster_stages(const Estimated& estimated);
/// The layout that estimate() prices: that of the request, or that of its bounds. Not checked.
Layout layout_to_estimate(const Resolved& resolved);
/// The same with other constants of the cost model.
Estimated estimate(const PlanRequest& request, const Calibration& calibration);

/// Layouts that no other beats in time, memory and number of GPUs.
struct Front {
  std::optional<Plan> fastest;  // nothing: no layout fits
  std::vector<RankedLayout> points;
  bool complete = true;
};
Front front(const Resolved& resolved, const Watch& watch = {});

/// The answer with its details, as text for a terminal.
std::string explain(const Plan& plan);

}  // namespace mpt::planner
