// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelDraft: a model as files describe it: the common properties of its layers, and a word for each layer.

#include <optional>
#include <string>
#include <vector>

#include "core/model_spec.h"

namespace mpt::models {

/// Mixers: full, rotary (full with rotary positions if other full layers have none), window, chunk, sparse,
/// sparse_shared, linear, both, convolution, none. MLPs: dense, experts, none.
struct ModelDraft {
  ModelSpec model;  // without its layers
  std::vector<std::string> mixers, mlps;
  Attention full, window;
  std::optional<int64_t> chunk;
  std::optional<AttentionIndex> index;
  std::optional<LinearMixer> linear;
  std::optional<ShortConvolution> convolution;
  std::optional<Mlp> mlp;
  std::optional<MixtureOfExperts> moe;
  bool full_without_rotary = false;  // full layers have no positions, others have
  bool dense_beside_experts = false;
  int64_t borrowers = 0;            // number of last layers, which share keys and values with lower ones
  bool borrowers_are_wide = false;  // their MLPs are twice as wide
  std::optional<LayerList> made;    // layers that words cannot describe, because their sizes differ

  bool has_mixer(const std::string& name) const;
  bool has_mlp(const std::string& name) const;
};

/// The kind of layer `layer`, from its words.
LayerKind kind_of(const ModelDraft& draft, int64_t layer);
ModelSpec model_of(const ModelDraft& draft);
/// `made` holds the layers that words cannot describe.
ModelDraft draft_of(const ModelSpec& model);

}  // namespace mpt::models
