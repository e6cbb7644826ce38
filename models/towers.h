// SPDX-License-Identifier: Apache-2.0
#pragma once

// Towers: encoders of pictures and sound that stand beside the language model of a Hugging Face file. Plans
// leave them out; here they are named and counted, so that nobody takes a plan for one of the whole model.

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

/// The towers of a config.json: what has a width and layers of its own, but for the language model. Patch
/// embeddings and projections into the language model are not counted.
std::vector<Tower> towers_of(const nlohmann::ordered_json& config);

/// "vision_config, 27 layers of width 1,152 with 411M parameters".
std::string tower_text(const Tower& tower);

}  // namespace mpt::models
