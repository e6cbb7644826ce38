// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/model_spec.h"
#include "models/towers.h"

namespace mpt::models {

struct ImportedModel {
  ModelSpec model;
  std::vector<std::string> ignored;  // keys that nothing asked for
  std::vector<Tower> towers;         // encoders of pictures and sound
  std::vector<std::string> notes{};  // what was assumed or left out, a sentence each
};

/// A parsed Hugging Face config.json as a ModelSpec. Keys that the family's configuration class defaults are
/// defaulted alike (absent and null may differ); what ModelSpec cannot say is refused; an unknown model_type,
/// a missing key or a wrong type is a UserError that names `file` and the key. Multimodal files are read
/// through their "text_config". `as`: the type to read the file as, whatever it says; empty: its own.
ImportedModel read_hugging_face(const nlohmann::ordered_json& config, const std::string& file,
                                const std::string& as = "");
ModelSpec import_hugging_face(const nlohmann::ordered_json& config, const std::string& file);

/// The values of "model_type" that can be read.
std::vector<std::string> hugging_face_types();

}  // namespace mpt::models
