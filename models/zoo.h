// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/model_spec.h"
#include "models/hf_config.h"

namespace mpt::models {

/// Names of the models that come with the program (models/zoo/*.json).
std::vector<std::string> zoo_names();

/// A model with its other names: ids of Hugging Face with the same architecture in config.json.
struct ZooModel {
  std::string name;  // name of its file
#include "generated/ZooModel.inc"
};
const std::vector<ZooModel>& zoo_models();

/// A parsed model file, our own or Hugging Face's config.json. `as`: the type to use instead of the type in
/// the file; empty: the file's. Throws UserError that names `file`.
ImportedModel read_model(nlohmann::ordered_json json, const std::string& file, const std::string& as = "");

/// As load_model(), with notes on the omitted parts of a Hugging Face config.json. `as`: the type to use
/// instead of the type in the file; empty: the file's.
ImportedModel load_imported_model(const std::string& name_or_path, const std::string& as = "");

/// The model of an id on the hub: the zoo's, else that of Hugging Face's local cache, else a model of the zoo
/// with the same sizes, and a note. Nothing for other ids.
std::optional<ImportedModel> model_of_id(const std::string& id, const std::string& as = "");

/// A model by name of the zoo or an alias, by path to a file of our own format, or by path to a Hugging Face
/// config.json (or the folder that holds one). Throws UserError; an unknown name lists the nearest.
ModelSpec load_model(const std::string& name_or_path);

}  // namespace mpt::models
