// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/plan_request.h"

namespace mpt::planner {

/// What is trained and how: as the request's options say, else as its layout does. Throws UserError for options
/// that do not go together. `tokens`: of a sequence, which may be packed of several.
Training training_of(const PlanRequest& request, int64_t tokens);

}  // namespace mpt::planner
