// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/hf_config.h"

namespace mpt::planner {

/// What mpt-plan model prints: layers by kind, parameters, work and memory of a token, and keys of the file
/// that were left out.
std::string describe_model(const models::ImportedModel& read, const std::vector<int64_t>& sequences,
                           int64_t stages);

}  // namespace mpt::planner
