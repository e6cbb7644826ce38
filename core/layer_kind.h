// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerKind: what one decoder layer is: what mixes its tokens, and its MLP or experts. Layers of a model that
// differ in anything are of different kinds. A kind lacks what its layers lack.

#include <cstdint>
#include <optional>
#include <string>

#include "base/fields.h"

namespace mpt {

/// situ: Kimi K3's. xielu: of two learned numbers (arXiv:2411.13010).
enum class ActivationKind { gelu, gelu_tanh, silu, relu, squared_relu, xielu, situ };
enum class QueryKeyNorm { none, per_head, full };
/// A sigmoid or the like of the layer's input multiplies the output of attention: one number for each head,
/// or one for each element.
enum class OutputGate { none, per_head, elementwise };

/// linear: all frequencies divided by the factor (arXiv:2306.15595). llama3: the low ones, smoothly
/// (Llama 3.1). yarn: by the turns that a frequency makes in the positions of pre-training
/// (arXiv:2309.00071). other: a scaling that only Hugging Face's code has.
enum class RotaryScalingKind { linear, llama3, yarn, other };

/// Frequencies of rotary positions for sequences longer than those of pre-training.
struct RotaryScaling {
#include "generated/RotaryScaling.inc"
};

/// Rotary positions of queries and keys (arXiv:2104.09864). A layer without them sees no positions, whatever
/// the other layers see.
struct Rotary {
#include "generated/Rotary.inc"
};

/// Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).
struct LatentAttention {
#include "generated/LatentAttention.inc"
};

/// Sparse attention: an index of small heads chooses the keys that each query sees (DeepSeek-V3.2,
/// arXiv:2512.02556, section 2.1; blocks of them: MiniMax M3).
struct AttentionIndex {
#include "generated/AttentionIndex.inc"
};

/// Compressed attention (DeepSeek-V4, arXiv:2606.19348, section 2.3). All heads share one key, which is also
/// the value. A query sees the tokens of a window, and entries that pool `ratio` tokens each. An index
/// chooses the entries; without one a query sees all earlier ones.
struct CompressedAttention {
#include "generated/CompressedAttention.inc"
};

struct Attention {
#include "generated/Attention.inc"

  int64_t value_head_dim() const {
    return latent ? latent->value_head_dim : value_dim > 0 ? value_dim : head_dim;
  }
  /// Its rotary positions; the defaults where it has none.
  const Rotary& rotation() const {
    static const Rotary usual;
    return rotary ? *rotary : usual;
  }
};

/// How much YaRN makes queries and keys grow (arXiv:2309.00071, section 3.4).
double yarn_growth(double factor, double scale);
/// The factor on scores; 0: 1 / sqrt(head_dim). Latent attention's scores grow by the square of what YaRN
/// gives queries and keys of others (transformers/models/deepseek_v3/modeling_deepseek_v3.py).
double score_scale_of(const Attention& attention);

/// Mixers whose work grows with the sequence, not its square, in their chunked training form. gated_delta:
/// Gated DeltaNet (arXiv:2412.06464). kimi_delta: KDA (arXiv:2510.26692). lightning: lightning attention
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

/// What the router makes of its logits: numbers that sum up to 1, or each expert's own number
/// (arXiv:2412.19437, section 2.1.2).
enum class RouterScores { softmax, sigmoid };

struct Mlp {
#include "generated/Mlp.inc"
};

/// Mixture of experts, in place of a dense MLP or beside one.
struct MixtureOfExperts {
#include "generated/MixtureOfExperts.inc"

  static constexpr double kMostExpertGroups = 64;
};

/// Each part that is there has its norm and its addition to the residual stream. Mixers of one layer work
/// side by side on the same input, and so do a dense MLP and experts.
struct LayerKind {
#include "generated/LayerKind.inc"

  bool has_mixer() const { return attention || linear || convolution; }
  bool has_mlp() const { return mlp || moe; }
};

/// A name made of the kind's parts: "attention_mlp", "window_experts", "mamba2".
std::string kind_name(const LayerKind& kind);

}  // namespace mpt
