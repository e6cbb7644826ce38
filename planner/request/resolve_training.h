// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/plan_request.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// What is trained and how: as the request's options say, else as its layout does. Throws UserError for
/// options that do not go together. `tokens`: of a sequence, which may be packed of several.
Training training_of(const PlanRequest& request, int64_t tokens);

/// Gradients as the request wants them. The width that the framework has by itself changes nothing; another
/// one that it does not train with is refused, or planned for with --beyond-framework. Reads the problem's
/// model, precision, execution and training.
void set_gradients(const PlanRequest& request, SearchProblem& problem, std::vector<std::string>& notes);

/// What deterministic kernels change in the problem's execution. A note says what of them is priced.
void set_deterministic(SearchProblem& problem, std::vector<std::string>& notes);

}  // namespace mpt::planner
