// SPDX-License-Identifier: Apache-2.0
#pragma once

// Models of Hugging Face's config.json, and their towers: encoders of pictures and sound in a file with a
// language model. Plans leave towers out. They are named and counted here, so that a plan is not mistaken for
// one of the whole model.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model_spec.h"
#include "models/family.h"
#include "models/values.h"

namespace mpt::models {

struct Tower {
#include "generated/Tower.inc"
};

/// The towers of a config.json: parts other than the language model that give a width and layers. Patch
/// embeddings and projections into the language model are not counted.
std::vector<Tower> towers_of(const nlohmann::ordered_json& config);

/// "vision_config, 27 layers of width 1,152 with 411M parameters". The key alone if the sizes are not known.
std::string tower_text(const Tower& tower);

struct ImportedModel {
  ModelSpec model;
  std::vector<std::string> ignored;  // keys that no reader used
  std::vector<Tower> towers;         // encoders of pictures and sound
  std::vector<std::string> notes{};  // assumptions and omissions, a sentence each
};

/// Sets the towers, with a note on each.
void add_towers(const std::vector<Tower>& towers, ImportedModel& read);

/// A parsed Hugging Face config.json as a ModelSpec. Absent keys get the defaults of the family's class
/// (absent and null may differ). Settings that ModelSpec cannot express are refused. An unknown model_type, a
/// missing key or a wrong type is a UserError that names `file` and the key. Multimodal files are read
/// through "text_config". `as`: the type to use instead of the file's; empty: the file's.
ImportedModel read_hugging_face(const nlohmann::ordered_json& config, const std::string& file,
                                const std::string& as = "");
ModelSpec import_hugging_face(const nlohmann::ordered_json& config, const std::string& file);

/// The model as a config.json of `type`, one of family_types(). Values that it cannot express are left out.
nlohmann::ordered_json write_hugging_face(const ModelSpec& model, const std::string& type);
/// The model with default balance loss and bias rate of routers: few types have keys for these.
ModelSpec with_usual_training(ModelSpec model);
/// The first value that differs after that file is read; nothing: it is the same model.
std::optional<Value> difference_of_type(const ModelSpec& model, const std::string& type);
/// The model's own type if it is one of `types` and reads back the same, or the first such type; empty: there
/// is none.
std::string written_type(const ModelSpec& model, const std::vector<std::string>& types = family_types());
/// For a model without such a type: the first value that its own type, or Llama's, cannot express.
Value unwritten_value(const ModelSpec& model);

}  // namespace mpt::models
