// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelSpec: what a decoder transformer is, whatever machine it runs on and however it is split. A plain
// value that travels inside a plan. Knowledge about models (importing, counting, operators) is in models/.

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "core/layer_list.h"

namespace mpt {

enum class NormKind { layer_norm, rms_norm };
/// pre: one norm before attention and one before the MLP. shared: one norm feeds both (parallel residual).
/// sandwich: before and after each of the two (Gemma 2). post: behind each of the two (OLMo 2).
enum class NormPlacement { pre, shared, sandwich, post };
enum class PositionKind { none, learned, rotary, alibi };

struct ModelSpec {
#include "generated/ModelSpec.inc"

  /// Of the lowest layer that has it: for what takes all layers to be alike in it.
  const Attention& attention() const;
  /// Of the lowest layer with a dense MLP; without one, a routed expert.
  const Mlp& mlp() const;
  /// Of the lowest layer that has experts; null: none has.
  const MixtureOfExperts* moe() const;
};

/// Whether both are the same, whatever they are called.
bool same_model(ModelSpec a, const ModelSpec& b);

/// Checks what single-field ranges cannot: heads divide, runs name kinds, experts at least top-k.
/// Throws UserError naming `file`.
void validate_model(const ModelSpec& model, const std::string& file);

std::string model_spec_to_text(const ModelSpec& model);

}  // namespace mpt
