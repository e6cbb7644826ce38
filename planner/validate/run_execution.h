// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the framework of a published run executes it: what is known of the framework
// (`framework_values.h`), and what the record's words change in that.

#include "core/execution.h"
#include "planner/validate/run_record.h"

namespace mpt::planner {

/// Each rule names the source that it was read in.
Execution execution_of(const RunRecord& run);

}  // namespace mpt::planner
