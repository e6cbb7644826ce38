// SPDX-License-Identifier: Apache-2.0
#pragma once

// Module: the role of an operator in its model. Rules on training, offload and recompute depend on the
// module; the operator's name is for people and files.

#include <cstdint>
#include <optional>

#include "core/layout.h"

namespace mpt::models {

enum class Module : uint8_t {
  token_table,
  embedding,  // operators after the tables
  mixer_norm,
  qkv,
  query,
  query_down,
  latent_norm,
  latent_up,
  key_value_down,
  rotary,
  attention_core,
  attention_output,
  mixer_input,
  mixer_output,
  mixer,  // all other parts of attention and other mixers
  mlp_norm,
  mlp_up,
  mlp_activation,
  mlp_down,
  mlp,         // all other parts of a layer's second half
  mlp_result,  // the norm and the residual after it
  router,
  experts_up,
  experts_activation,
  experts_down,
  experts,  // all other parts of routing and experts
  head_output,
  head,     // all other parts after the layers
  widen,    // widens a frozen weight
  adapter,  // keep this one last
};

/// Choices of selective recompute that apply to a layer, as bits.
enum Rerun : uint8_t {
  kRerunCore = 1,
  kRerunLatentNorms = 2,  // norms with latent attention
  kRerunExpertNorms = 4,  // norms with experts
  kRerunLatent = 8,
  kRerunLatentRotary = 16,
  kRerunActivation = 32,  // the experts'
  kRerunMlp = 64,
  kRerunExperts = 128,
};

struct ModuleRules {
  Module module;
  std::optional<FrozenPart> part;  // the part that freezes it
  bool quantised = false;          // its frozen weights are stored in fewer bits
  std::optional<AdapterTarget> adapter = {};
  std::optional<OffloadModule> offload = {};
  unsigned again = 0, drops = 0;  // Rerun bits that rerun it, and bits that drop its saved bytes
};

const ModuleRules& rules_of(Module module);

/// Rerun bits of a layer, without kRerunCore.
unsigned reruns_of(const SelectiveRecompute& selective, const LayerKind& kind);

}  // namespace mpt::models
