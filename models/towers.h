// SPDX-License-Identifier: Apache-2.0
#pragma once

// Towers: encoders of pictures and sound in a Hugging Face file with a language model. Plans leave them out.
// Here they are named and counted, so that nobody takes a plan for one of the whole model.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace mpt::models {

struct Tower {
  std::string key;  // of the file: "vision_config"
  int64_t layers = 0, width = 0;
  int64_t parameters = 0;  // of its layers' matrices; 0: the file does not say enough
  bool operator==(const Tower&) const = default;
};

/// The towers of a config.json: parts other than the language model that give a width and layers. Patch
/// embeddings and projections into the language model are not counted.
std::vector<Tower> towers_of(const nlohmann::ordered_json& config);

/// "vision_config, 27 layers of width 1,152 with 411M parameters".
std::string tower_text(const Tower& tower);

}  // namespace mpt::models
