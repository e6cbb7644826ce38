// SPDX-License-Identifier: Apache-2.0
#pragma once

// The answers of mpt-plan model, for people and as JSON.

#include <string>
#include <vector>

#include "base/json.h"
#include "models/hf_config.h"

namespace mpt::planner {

/// "  layers           32 of width 4,096"
std::string line_of(const std::string& name, const std::string& text);

/// The text of mpt-plan model: layers by kind, parameters, work and memory of a token, and keys of the file
/// that were left out.
std::string describe_model(const models::ImportedModel& read, const std::vector<int64_t>& sequences,
                           int64_t stages);

/// The output of mpt-plan model --json: the model as a file, parameters by kind of layer and by stage of an
/// even pipeline, FLOP of operators at several lengths, bytes of a token, and keys that were left out.
Json model_counts(const models::ImportedModel& read, const std::vector<int64_t>& sequences, int64_t stages);

/// Layers and parameters of each stage of an even pipeline.
Json stage_counts(const ModelSpec& model, int64_t stages);

}  // namespace mpt::planner
