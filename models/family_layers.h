// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which layers of a config.json are of which kind, by the rules of its family.

#include <optional>
#include <string>
#include <vector>

#include "models/family_reader.h"

namespace mpt::models {

/// A model whose layers are named and not yet made. Mixers: full, rotary (full with rotary positions where
/// other full layers have none), window, chunk, sparse, sparse_shared, linear, both, convolution, none. MLPs:
/// dense, experts, none.
struct FamilyDraft {
  ModelSpec model;
  std::vector<std::string> mixers, mlps;
  Attention full, window;
  std::optional<LinearMixer> linear;
  std::optional<Mlp> mlp;
  std::optional<MixtureOfExperts> moe;
  bool full_without_rotary = false;  // full layers beside others see no positions
  bool dense_beside_experts = false;
  int64_t borrowers = 0;            // last layers whose keys and values are those of layers below
  bool borrowers_are_wide = false;  // their MLPs are twice as wide
  std::optional<LayerList> made;    // where no names say it: layers whose sizes differ one by one

  bool has_mixer(const std::string& name) const;
};

/// By the rules alone; `layers` of them.
FamilyDraft draft_of(FamilyReader& reader, int64_t layers);
/// Models with attention over pooled tokens (DeepSeek-V4).
void deepseek_v4(FamilyReader& reader, FamilyDraft& draft);
/// Models whose blocks are one part each, or differ one by one (Nemotron-H, Nemotron-NAS).
void nemotron_h(FamilyReader& reader, FamilyDraft& draft);
void nemotron_nas(FamilyReader& reader, FamilyDraft& draft);
/// What code, by the name of its family, changes of the draft; nothing where there is none.
void apply_family_code(FamilyReader& reader, FamilyDraft& draft);
/// Of layer `layer` by its names.
LayerKind kind_of(FamilyReader& reader, const FamilyDraft& draft, int64_t layer);
LayerList layers_of(FamilyReader& reader, const FamilyDraft& draft);

}  // namespace mpt::models
