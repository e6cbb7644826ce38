// SPDX-License-Identifier: Apache-2.0
#pragma once

// Training: which weights of a model are trained, by which optimizer, and on sequences of which lengths. The
// defaults are full training by AdamW on sequences of one length.

#include <cstdint>
#include <vector>

#include "base/fields.h"
#include "base/ranges.h"

namespace mpt {

/// adamw8: both moments in 8 bits (arXiv:2110.02861). adafactor: only the rows and columns of the second
/// moment (arXiv:1804.04235). sgd: with momentum. muon: one moment, made orthogonal by Newton-Schulz steps,
/// for the matrices of layers, and AdamW for all other weights (arXiv:2502.16982).
enum class OptimizerKind { adamw, adamw8, adafactor, sgd, muon };
/// How frozen weights are stored. nf4: 4 bits, with scales that are quantised again (arXiv:2305.14314). int8:
/// 8 bits, with a scale for each row (arXiv:2208.07339).
enum class FrozenFormat { bf16, fp8, nf4, int8 };
/// Products that get adapters of low rank (LoRA, arXiv:2106.09685).
enum class AdapterTarget { qkv, output, up, down, experts };
/// Parts of a model that are not trained.
enum class FrozenPart { embedding, mixers, mlps, experts, head };
/// Activations that a layer keeps for backward and may move to host memory until then, by Megatron-LM's names
/// (offload_modules in megatron/core/transformer/transformer_config.py).
enum class OffloadModule { attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act };

struct Training {
#include "generated/Training.inc"

  bool adapts() const { return adapter_rank > 0; }
  bool adapts(AdapterTarget target) const { return adapts() && contains(adapter_targets, target); }
  /// With adapters all parts are frozen, unless some are named.
  bool freezes(FrozenPart part) const { return frozen.empty() ? adapts() : contains(frozen, part); }
  /// Whether a layer has more products than with full training, or other ones.
  bool changes_products() const {
    return adapts() || (!frozen.empty() && frozen_format != FrozenFormat::bf16);
  }
  bool offloads(OffloadModule module) const { return contains(offloaded, module); }
};

}  // namespace mpt
