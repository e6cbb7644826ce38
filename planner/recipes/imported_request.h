// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/plan_request.h"
#include "frameworks/import.h"

namespace mpt::planner {

/// The request to estimate what `file` says of a run, read by the framework `importer`; what the file leaves
/// open follows from `asked`, whose cluster must be named. Throws UserError.
PlanRequest imported_request(frameworks::Imported imported, const PlanRequest& asked, const std::string& file,
                             const std::string& importer);

}  // namespace mpt::planner
