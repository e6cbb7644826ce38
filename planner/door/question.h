// SPDX-License-Identifier: Apache-2.0
#pragma once

// The answer of the door to a question. Include this only from .cpp files, like base/json.h.

#include "base/json.h"
#include "planner/api.h"

namespace mpt::planner {

/// Throws UserError, also for a field that the question does not have.
Json answer_of(const Json& question, const Watch& watch);

}  // namespace mpt::planner
