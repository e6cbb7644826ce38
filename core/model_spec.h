// SPDX-License-Identifier: Apache-2.0
#pragma once

// ModelSpec: a decoder transformer, independent of machines and layouts. A plain value that is part of a
// plan. Knowledge about models (importing, counting, operators) is in models/.

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "core/layer_list.h"

namespace mpt {

enum class NormKind { layer_norm, rms_norm };
/// pre: one norm before attention and one before the MLP. shared: one norm feeds both (parallel residual).
/// sandwich: before and after each of the two (Gemma 2). post: after each of the two (OLMo 2).
enum class NormPlacement { pre, shared, sandwich, post };
enum class PositionKind { none, learned, rotary, alibi };

struct ModelSpec {
#include "generated/ModelSpec.inc"

  /// Attention of the lowest layer that has it. For code that assumes the same attention in all layers.
  const Attention& attention() const;
  /// MLP of the lowest layer with a dense MLP; without one, a routed expert.
  const Mlp& mlp() const;
  /// Experts of the lowest layer that has them; null: no layer has any.
  const MixtureOfExperts* moe() const;
};

/// Whether both are the same, apart from their names.
bool same_model(ModelSpec a, const ModelSpec& b);

/// Checks rules that ranges of single fields cannot express: heads divide, runs name kinds, experts at least
/// top-k. Throws UserError naming `file`.
void validate_model(const ModelSpec& model, const std::string& file);

std::string model_spec_to_text(const ModelSpec& model);

}  // namespace mpt
