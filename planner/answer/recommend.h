// SPDX-License-Identifier: Apache-2.0
#pragma once

// What plan() and its relatives are made of: a search, the choice among equals, the plan of the choice, and
// whether a layout that may not fit is worth a trial.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/api.h"
#include "planner/search/arrangement.h"

namespace mpt::planner {

/// The `keep` fastest layouts; the first is the one to recommend: of those whose times cannot be told apart
/// it has most memory left, then the fewest kinds of parallelism. `what`: for the watch.
std::unique_ptr<ArrangedSearch> recommended_search(const SearchProblem& problem, size_t keep,
                                                   const Watch& watch = {}, const std::string& what = "");

/// Throws UserError where the request says what one layout alone can have.
void check_searches(const PlanRequest& request);

/// The layout that the bounds name; what they leave out is 1, off or what the rest leaves. Not checked.
/// Throws UserError for degrees and chunks that no layout has.
Layout layout_of_bounds(const SearchProblem& problem);

/// Whether its framework has no tensor parallelism without sequence parallelism.
bool needs_sequence_parallel(const SearchProblem& problem);

/// Whether memory is limited so that a plan is likely to fit, and not by the request.
bool has_default_margin(const Resolved& resolved);
/// Searches with the largest margin of memory with which any layout fits.
std::unique_ptr<ArrangedSearch> likeliest_search(const Resolved& resolved, const Watch& watch);

/// The plan of its first layout, with what other arrangements of a mixed cluster reach.
Plan plan_of(const ArrangedSearch& search, const PlanRequest& request);
/// A plan of one given layout, whether it fits or not.
Plan plan_of(const SearchProblem& problem, const Candidate& candidate, const PlanRequest& request);

/// The recommended plan of a problem, without alternatives or remedies.
PlanOrReason plan_or_reason(SearchProblem problem, const PlanRequest& request, const Watch& watch = {});

/// What would fit where nothing does, searched for within some seconds; empty where nothing was found.
std::string remedy_of_nothing_fits(const Resolved& resolved, const SearchResult& result,
                                   const SearchProblem& problem, const Watch& watch);

inline constexpr int64_t kTrialSteps = 20;

/// A step on average over a short training: the first layout where it fits, else its trial and then the
/// other.
double expected_step_s(double fits, double first_s, double other_s);

/// Of `candidates`, which are faster than `safe`, the one with the least expected time; its place in
/// `candidates`, from 0, stands in try_first. Nothing where none gains enough, or nothing tells whether it
/// fits.
std::optional<WeighedRisk> weigh(const RankedLayout& safe, const std::vector<RankedLayout>& candidates);

}  // namespace mpt::planner
