// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of a predicted step time rests on constants that were fitted to published runs. It is worked out for a
// plan that is shown, never inside a search.

#include <string>

#include "planner/search/search.h"

namespace mpt::planner {

/// An operator or a collective counts with its price's relative changes by each fitted constant, each by the
/// relative change of the constant, added up to the whole price at most. The share is what all of them
/// together are of the step, at their places in the program.
FittedTime fitted_time(const SearchProblem& problem, const Candidate& candidate);

/// "71% of the step time rests on ..."; empty where the plan does not say.
std::string describe_fitted_time(const Plan& plan);

}  // namespace mpt::planner
