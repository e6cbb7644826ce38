// SPDX-License-Identifier: Apache-2.0
#pragma once

// What each decoder layer of a model has.

#include <vector>

#include "core/model_spec.h"

namespace mpt::test {

inline bool layer_has_experts(const ModelSpec& model, int64_t layer) {
  return model.layers[layer].moe.has_value();
}

inline std::vector<bool> windowed_layers(const ModelSpec& model) {
  std::vector<bool> windowed;
  for (int64_t l = 0; l < model.layers.count(); ++l) {
    const LayerKind& kind = model.layers[l];
    windowed.push_back(kind.attention && kind.attention->window);
  }
  return windowed;
}

inline std::vector<bool> expert_layers(const ModelSpec& model) {
  std::vector<bool> experts;
  for (int64_t l = 0; l < model.layers.count(); ++l) experts.push_back(layer_has_experts(model, l));
  return experts;
}

}  // namespace mpt::test
