// SPDX-License-Identifier: Apache-2.0
#pragma once

// The parts of plan() and similar functions: a search, the choice among ties, the plan of the choice, and
// whether a layout that may not fit is worth a trial.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/api.h"
#include "planner/search/arrangement.h"

namespace mpt::planner {

/// The `keep` fastest layouts; the first is the recommended one. Among tied layouts it has the most free
/// memory, then the fewest kinds of parallelism. `what`: text for `watch`.
std::unique_ptr<ArrangedSearch> recommended_search(const SearchProblem& problem, size_t keep,
                                                   const Watch& watch = {}, const std::string& what = "");

/// Throws UserError if the request has a setting that only a single layout can have.
void check_searches(const PlanRequest& request);

/// Whether the memory limit has the default margin, which makes a plan likely to fit.
bool has_default_margin(const Resolved& resolved);
/// The recommended layout, else the likeliest to fit: recommended_search() and likeliest_search(), within the
/// time limit of the problem, which is then used up.
std::unique_ptr<ArrangedSearch> likely_search(Resolved& resolved, const Watch& watch,
                                              const std::string& what = "");
/// Searches with the largest memory margin with which any layout fits. `roomier` has faster ones that fit
/// with less.
std::unique_ptr<ArrangedSearch> likeliest_search(const Resolved& resolved, const Watch& watch);

/// The plan of the first layout of a search, with the results of other arrangements of a mixed cluster.
Plan plan_of(const ArrangedSearch& search, const PlanRequest& request);
/// A plan of one given layout, whether it fits or not.
Plan plan_of(const SearchProblem& problem, const Candidate& candidate, const PlanRequest& request);

/// One given layout, whether it fits or not.
Candidate priced(const SearchProblem& problem, const Layout& layout);

/// plan() without plans for fewer nodes.
Plan searched_plan(const Resolved& resolved, const Watch& watch);

/// Throws UserError for numbers of nodes of --or-nodes that cannot be.
void check_fewer_nodes(const Resolved& resolved);
/// Adds the best layouts on fewer nodes, and what it costs to go on there. The searches share the rest of
/// the request's time limit since `start_s`.
void add_fewer_nodes(const Resolved& resolved, double start_s, const Watch& watch, Plan& plan);

/// The recommended plan of a search or problem, without alternatives or remedies.
PlanOrReason plan_or_reason(const ArrangedSearch& search, const PlanRequest& request);
PlanOrReason plan_or_reason(SearchProblem problem, const PlanRequest& request, const Watch& watch = {});

/// A change with which some layout would fit, from searches of some seconds; empty if none was found.
std::string remedy_of_nothing_fits(const Resolved& resolved, const SearchResult& result,
                                   const SearchProblem& problem, const Watch& watch);

inline constexpr int64_t kTrialSteps = 20;

/// Average step time over a short training: the first layout if it fits, otherwise a trial of it and then the
/// other layout.
double expected_step_s(double fits, double first_s, double other_s);

/// The one of `candidates` with the least expected time; all are faster than
/// `safe`. try_first has its index in `candidates`, from 0. Nothing if none gains
/// enough, or if it is unknown whether it fits.
std::optional<WeighedRisk> weigh(const RankedLayout& safe, const std::vector<RankedLayout>& candidates);

}  // namespace mpt::planner
