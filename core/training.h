// SPDX-License-Identifier: Apache-2.0
#pragma once

// Training: which weights of a model are trained, by which optimizer, and on sequences of which lengths. The
// defaults are full training by AdamW on sequences of one length.

#include <cstdint>
#include <vector>

#include "base/fields.h"
#include "base/ranges.h"

namespace mpt {

/// adamw8: both moments in 8 bits (arXiv:2110.02861). adafactor: the second moment's rows and columns alone
/// (arXiv:1804.04235). sgd: with momentum. muon: one moment, made orthogonal by Newton-Schulz steps, for the
/// matrices of layers, and AdamW for all else (arXiv:2502.16982).
enum class OptimizerKind { adamw, adamw8, adafactor, sgd, muon };
/// How frozen weights are stored. nf4: 4 bits, with scales that are quantised again (arXiv:2305.14314).
enum class FrozenFormat { bf16, fp8, nf4 };
/// Products that get adapters of low rank (LoRA, arXiv:2106.09685).
enum class AdapterTarget { qkv, output, up, down, experts };
/// Parts of a model that are not trained.
enum class FrozenPart { embedding, mixers, mlps, experts, head };
/// What a layer keeps for backward and may move to the host's memory until then, by Megatron-LM's names
/// (offload_modules in megatron/core/transformer/transformer_config.py).
enum class OffloadModule { attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act };

struct Training {
  OptimizerKind optimizer = OptimizerKind::adamw;
  bool bf16_gradients = false;  // summed and kept in 16 bits
  bool deterministic = false;   // only kernels that give the same result in every run
  // Rank of the adapters; 0: none. With adapters nothing else is trained.
  int64_t adapter_rank = 0;
  std::vector<AdapterTarget> adapter_targets;
  FrozenFormat frozen_format = FrozenFormat::bf16;
  std::vector<FrozenPart> frozen;
  std::vector<OffloadModule> offloaded;  // what waits for backward in the host's memory
  // Of sequences that are packed of several: the length whose attention costs as much per token, 0 if they
  // are not packed; and the standard deviation of a packed sequence's attention over its mean.
  double packed_length = 0.0;
  double packed_spread = 0.0;
  int64_t packed_sequences = 0;  // of a step
  double masked = 0.0;           // share of the tokens that the loss leaves out

  bool adapts() const { return adapter_rank > 0; }
  bool adapts(AdapterTarget target) const { return adapts() && contains(adapter_targets, target); }
  bool freezes(FrozenPart part) const { return adapts() || contains(frozen, part); }
  /// Whether a layer has more products, or has them otherwise, than with full training.
  bool changes_products() const {
    return adapts() || (!frozen.empty() && frozen_format != FrozenFormat::bf16);
  }
  bool offloads(OffloadModule module) const { return contains(offloaded, module); }
  bool operator==(const Training&) const = default;

  static void describe(auto& v) {
    using T = Training;
    v.field("optimizer", &T::optimizer, "what updates the weights", rare_field());
    v.field("bf16_gradients", &T::bf16_gradients, "gradients are summed and kept in 16 bits", rare_field());
    v.field("deterministic", &T::deterministic, "kernels give the same result in every run", rare_field());
    v.field("adapter_rank", &T::adapter_rank, "rank of LoRA's adapters; 0: all weights are trained",
            rare_field(between(0, 1 << 16)));
    v.field("adapter_targets", &T::adapter_targets, "products with adapters", rare_field());
    v.field("frozen_format", &T::frozen_format, "how frozen weights are stored", rare_field());
    v.field("frozen", &T::frozen, "parts that are not trained", rare_field());
    v.field("offloaded", &T::offloaded, "modules whose activations wait in the host's memory", rare_field());
    v.field("packed_length", &T::packed_length,
            "length of equal sequences whose attention costs as much as the packed ones'",
            rare_field(between(0, 1 << 28)));
    v.field("packed_spread", &T::packed_spread, "deviation of a packed sequence's attention over its mean",
            rare_field(between(0, 1e3)));
    v.field("packed_sequences", &T::packed_sequences, "packed sequences of a step",
            rare_field(between(0, 1 << 28)));
    v.field("masked", &T::masked, "share of the tokens that the loss leaves out", rare_field(between(0, 1)));
  }
};

}  // namespace mpt
