// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/model_spec.h"

namespace mpt::models {

/// Names of the models that come with the program (models/zoo/*.json).
std::vector<std::string> zoo_names();

/// A model by name of the zoo, by path to a file of our own format, or by path to a Hugging Face config.json
/// (or the folder that holds one). Throws UserError; an unknown name lists the nearest.
ModelSpec load_model(const std::string& name_or_path);

}  // namespace mpt::models
