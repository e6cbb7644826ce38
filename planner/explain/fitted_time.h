// SPDX-License-Identifier: Apache-2.0
#pragma once

// The share of a predicted step time that rests on constants that were fitted to published runs. It is worked
// out for a plan that is shown, never inside a search.

#include <string>

#include "planner/search/search.h"

namespace mpt::planner {

/// Each operator and each collective has a part that rests on fitted constants. The part is the sum of its
/// price's relative changes by each constant, for the same relative change of the constant. It is at most the
/// whole price. The share adds up these parts over the step, each at its place in the program.
FittedTime fitted_time(const SearchProblem& problem, const Candidate& candidate);

/// "71% of the step time rests on ..."; empty where the plan does not say.
std::string describe_fitted_time(const Plan& plan);

}  // namespace mpt::planner
