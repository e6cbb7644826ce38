// SPDX-License-Identifier: Apache-2.0
#pragma once

// Module: what an operator is in its model. Rules on training, offload and recompute ask the module; the
// operator's name is for people and files.

#include <cstdint>
#include <optional>

#include "core/layout.h"

namespace mpt::models {

enum class Module : uint8_t {
  token_table,
  embedding,  // what follows the tables
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
  mixer,  // all else of attention and other mixers
  mlp_norm,
  mlp_up,
  mlp_activation,
  mlp_down,
  mlp,         // all else of a layer's second half
  mlp_result,  // the norm and the residual after it
  router,
  experts_up,
  experts_activation,
  experts_down,
  experts,  // all else of routing and experts
  head_output,
  head,     // all else after the layers
  widen,    // of a frozen weight
  adapter,  // the last one
};

/// Choices of selective recompute as far as they hold for a layer: bits.
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
  std::optional<FrozenPart> part;  // by which it is frozen
  bool quantised = false;          // its frozen weights are stored in fewer bits
  std::optional<AdapterTarget> adapter = {};
  std::optional<OffloadModule> offload = {};
  unsigned again = 0, drops = 0;  // Rerun bits that rerun it, and that drop its saved bytes
};

const ModuleRules& rules_of(Module module);

/// Rerun bits of a layer but that of the core.
unsigned reruns_of(const SelectiveRecompute& selective, const LayerKind& kind);

}  // namespace mpt::models
