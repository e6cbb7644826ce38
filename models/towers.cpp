// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/json.h"
#include "base/quantity.h"

namespace mpt::models {
namespace {

constexpr int64_t kMostOfASize = 1 << 18;  // products of four stay below 2^63 with kMostTowerLayers
constexpr int64_t kMostTowerLayers = 1 << 12;

// The first of the keys with a whole number in the allowed range; 0 if there is none.
int64_t size_of(const Json& tower, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    const auto found = tower.find(key);
    if (found == tower.end() || !found->is_number_integer()) continue;
    const double value = found->get<double>();
    if (value >= 1 && value <= kMostOfASize) return found->get<int64_t>();
  }
  return 0;
}

// MLPs of three matrices: classes of these types in transformers 5.24.
bool is_gated(const Json& tower) {
  static const std::set<std::string> gated{"gemma4_vision", "pixtral", "qwen2_5_vl", "qwen2_5_vl_vision"};
  const auto type = tower.find("model_type");
  return type != tower.end() && type->is_string() && gated.contains(type->get<std::string>());
}

Tower tower_of(const std::string& key, const Json& json) {
  Tower tower{key, size_of(json, {"depth", "num_hidden_layers", "vt_num_hidden_layers", "encoder_layers"}),
              size_of(json, {"hidden_size", "vt_hidden_size", "d_model"}), 0};
  const int64_t mlp = size_of(json, {"intermediate_size", "vt_intermediate_size", "encoder_ffn_dim"});
  tower.layers = std::min(tower.layers, kMostTowerLayers);
  if (tower.layers == 0 || tower.width == 0 || mlp == 0) return tower;
  const int64_t heads = size_of(json, {"num_attention_heads", "num_heads", "vt_num_attention_heads"});
  const int64_t given = size_of(json, {"qkv_hidden_size"}), of_head = size_of(json, {"head_dim"});
  const int64_t attention = given > 0 ? given : heads > 0 && of_head > 0 ? heads * of_head : tower.width;
  tower.parameters = tower.layers * tower.width * (4 * attention + (is_gated(json) ? 3 : 2) * mlp);
  return tower;
}

}  // namespace

std::vector<Tower> towers_of(const Json& config) {
  std::vector<Tower> towers;
  if (!config.is_object()) return towers;
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_config") || key == "text_config" || !value.is_object()) continue;
    const Tower tower = tower_of(key, value);
    if (tower.layers > 0 && tower.width > 0) towers.push_back(tower);
  }
  return towers;
}

void add_towers(const std::vector<Tower>& towers, ImportedModel& read) {
  for (const Tower& tower : towers)
    read.notes.push_back("plans leave out memory and time of " + tower_text(tower));
  read.towers = towers;
}

std::string tower_text(const Tower& tower) {
  if (tower.layers == 0) return tower.key;
  return fmt::format(
      "{}, {} layers of width {}{}", cut_text(tower.key, 40), tower.layers, format_count(tower.width),
      tower.parameters > 0 ? fmt::format(" with {} parameters", format_magnitude(double(tower.parameters)))
                           : "");
}

}  // namespace mpt::models
