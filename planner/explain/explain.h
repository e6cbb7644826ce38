// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reasons for people: why the first layout won, why the second is slower, why the others were ruled out; and
// the plan that holds these reasons.

#include <string>
#include <vector>

#include "core/plan.h"
#include "planner/explain/evidence.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

/// The parts of the step time, averaged over ranks; they add up to the step.
struct Breakdown {
  double compute_s = 0.0;      // forward and backward without collectives, and the optimizer
  double collectives_s = 0.0;  // tensor-, context-, expert-parallel and ZeRO collectives inside them
  InsideCompute inside;        // the same by kind
  double idle_s = 0.0;         // the compute lane waits: bubble and exposed transfers
  double transfer_s = 0.0;     // of idle_s: time lost because transfers between stages take time
  double step_end_s = 0.0;     // of idle_s: gradient reduction and norm after the last backward
};
Breakdown breakdown(const SearchProblem& problem, const Candidate& candidate);
/// Only the kinds that the layout has.
std::vector<ExposedCommunication> exposed_communication(const Layout& layout, const Breakdown& breakdown);

/// ": 158 ms more computing, 30 ms less idle time": the differences of a step of `other` from a step of
/// `first`. Small differences are left out; empty if there is none.
std::string difference_of(const SearchProblem& problem, const Candidate& first, const Candidate& other);

/// The benefits of the layout's parts, the traffic on its links, and the losses of the next layouts.
std::vector<std::string> reasons(const SearchResult& result, const SearchProblem& problem);
std::vector<std::string> rejections(const SearchResult& result, const SearchProblem& problem);

/// A row of a plan's ranking.
RankedLayout ranked(const Candidate& candidate, const SearchProblem& problem,
                    const std::vector<Evidence>& evidence);
/// The complete plan of the search's first layout.
Plan make_plan(const SearchResult& result, const SearchProblem& problem);

}  // namespace mpt::planner
