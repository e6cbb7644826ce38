// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerKind: the parts of one decoder layer: the mixer of its tokens, and its MLP or experts. Layers of a
// model that differ in anything are of different kinds. A kind has only the parts that its layers have.

#include <cstdint>
#include <optional>
#include <string>

#include "base/fields.h"

namespace mpt {

/// situ: the activation of Kimi K3. xielu: two of its numbers are learned (arXiv:2411.13010).
enum class ActivationKind { gelu, gelu_tanh, silu, relu, squared_relu, xielu, situ };
enum class QueryKeyNorm { none, per_head, full };
/// A sigmoid or similar function of the layer's input multiplies the output of attention: one factor for each
/// head, or one for each element.
enum class OutputGate { none, per_head, elementwise };

/// linear: the factor divides all frequencies (arXiv:2306.15595). llama3: it divides the low ones, with a
/// smooth transition (Llama 3.1). yarn: depends on the turns that a frequency makes in the positions of
/// pre-training (arXiv:2309.00071). Hugging Face's code alone has the rest. longrope, dynamic: depends on the
/// longest position that a module sees.
enum class RotaryScalingKind { linear, llama3, yarn, longrope, dynamic, other };

/// Changed frequencies of rotary positions, for sequences longer than those of pre-training.
struct RotaryScaling {
#include "generated/RotaryScaling.inc"
};

/// Rotary positions of queries and keys (arXiv:2104.09864). A layer without them sees no positions, even if
/// other layers do.
struct Rotary {
#include "generated/Rotary.inc"
};

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentAttention {
#include "generated/LatentAttention.inc"
};

/// Sparse attention: an index of small heads chooses the keys that each query sees (DeepSeek-V3.2,
/// arXiv:2512.02556, section 2.1). In MiniMax M3 it chooses blocks of keys.
struct AttentionIndex {
#include "generated/AttentionIndex.inc"
};

/// Compressed attention (DeepSeek-V4, arXiv:2606.19348, section 2.3). All heads share one key, which is also
/// the value. A query sees the tokens of a window, and entries that pool `ratio` tokens each. An index
/// chooses the entries; without an index a query sees all earlier ones.
struct CompressedAttention {
#include "generated/CompressedAttention.inc"
};

struct Attention {
#include "generated/Attention.inc"

  int64_t value_head_dim() const {
    return latent ? latent->value_head_dim : value_dim > 0 ? value_dim : head_dim;
  }
  /// Its rotary positions; the defaults if it has none.
  const Rotary& rotation() const {
    static const Rotary usual;
    return rotary ? *rotary : usual;
  }
};

/// The scaling of an attention's rotary positions; null: none.
const RotaryScaling* scaling_of(const Attention& attention);

/// The factor by which YaRN scales queries and keys (arXiv:2309.00071, section 3.4).
double yarn_growth(double factor, double scale);
/// The factor on scores; 0: 1 / sqrt(head_dim). YaRN scales queries and keys by yarn_growth(); latent
/// attention scales scores by its square instead (transformers/models/deepseek_v3/modeling_deepseek_v3.py).
double score_scale_of(const Attention& attention);

/// Mixers with work linear in the sequence, not quadratic, in their chunked training form. gated_delta: Gated
/// DeltaNet (arXiv:2412.06464). kimi_delta: KDA (arXiv:2510.26692). lightning: lightning attention
/// (arXiv:2401.04658). mamba2: SSD (arXiv:2405.21060). mamba1: the selective scan (arXiv:2312.00752), with
/// one channel per head.
enum class LinearKind { gated_delta, kimi_delta, lightning, mamba2, mamba1 };

struct LinearMixer {
#include "generated/LinearMixer.inc"
};

/// A gated short convolution of every channel (LFM2, arXiv:2511.23404).
struct ShortConvolution {
#include "generated/ShortConvolution.inc"
};

/// The scores that the router computes from its logits: numbers that sum up to 1, or a separate number for
/// each expert (arXiv:2412.19437, section 2.1.2).
enum class RouterScores { softmax, sigmoid };

struct Mlp {
#include "generated/Mlp.inc"
};

/// Mixture of experts, instead of a dense MLP or in addition to one.
struct MixtureOfExperts {
#include "generated/MixtureOfExperts.inc"

  static constexpr double kMostExpertGroups = 64;
};

/// Each part of a layer has a norm and an addition to the residual stream. Mixers of one layer work on the
/// same input, and so do a dense MLP and experts.
struct LayerKind {
#include "generated/LayerKind.inc"

  bool has_mixer() const { return attention || linear || convolution; }
  bool has_mlp() const { return mlp || moe; }
};

/// A name made of the kind's parts: "attention_mlp", "window_experts", "mamba2".
std::string kind_name(const LayerKind& kind);

}  // namespace mpt
