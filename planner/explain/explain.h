// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reasons for people: why the first layout won, where the second loses, what ruled the others out; and the
// plan that holds them.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/explain/details.h"
#include "planner/explain/evidence.h"
#include "planner/search/search.h"

namespace mpt::planner {

/// Where the step's time goes on the ranks' average: they add up to the step.
struct Breakdown {
  double compute_s = 0.0;      // forward and backward without collectives, and the optimizer
  double collectives_s = 0.0;  // tensor-, context-, expert-parallel and ZeRO collectives inside them
  InsideCompute inside;        // the same by kind
  double idle_s = 0.0;         // compute lane waits: bubble and exposed transfers
  double transfer_s = 0.0;     // of the idle time: what the step loses if transfers between stages take time
  double step_end_s = 0.0;     // of the idle time: gradient reduction and norm behind the last backward
};
Breakdown breakdown(const SearchProblem& problem, const Candidate& candidate);
/// Of the kinds that the layout has.
std::vector<ExposedCommunication> exposed_communication(const Layout& layout, const Breakdown& breakdown);

/// ": 158 ms more computing, 30 ms less idle time": what a step of `other` has more and less of than one of
/// `first`. Parts that hardly matter are left out; empty where none differs.
std::string difference_of(const SearchProblem& problem, const Candidate& first, const Candidate& other);

/// What the layout's parts are good for, what its links carry, and what the next ones lose.
std::vector<std::string> reasons(const SearchResult& result, const SearchProblem& problem);
std::vector<std::string> rejections(const SearchResult& result, const SearchProblem& problem);

/// A row of a plan's ranking.
RankedLayout ranked(const Candidate& candidate, const SearchProblem& problem,
                    const std::vector<Evidence>& evidence);
/// The complete plan of the search's first layout.
Plan make_plan(const SearchResult& result, const SearchProblem& problem);

}  // namespace mpt::planner
