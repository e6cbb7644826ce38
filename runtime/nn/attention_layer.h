// SPDX-License-Identifier: Apache-2.0
#pragma once

// AttentionLayer: the products around the attention core, and the steps between them. Queries, keys and
// values come from one product, or from latents (DeepSeek-V2, arXiv:2405.04434, section 2.1): small products
// that every tensor rank computes for its local tokens, norms, and products that expand them to the rank's
// heads. If a gate multiplies the core's output, the product of queries, keys and values also computes the
// gate.

#include <optional>

#include "runtime/nn/attention_core.h"
#include "runtime/nn/head_norm.h"
#include "runtime/nn/linear.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class AttentionLayer : private Part {
 public:
  /// A latent, its norm, and their gradients.
  struct Latent {
    Buffer compressed, statistics, normed;
    Buffer d_expanded, d_normed, d_down;  // from backward_input to backward_weight
  };
  struct Saved {
    Latent query, key_value;
    HeadNorm::Saved heads;
    Buffer qkv, log_sum_exp, core_out;
    Buffer magnitudes;   // in 8 bits
    Buffer gate, gated;  // with an output gate: its logits, input of the last product
    Buffer d_qkv, d_gate, d_output_gathered, d_sinks;  // from backward_input to backward_weight
  };

  /// `name`: of the parameters, "layers.0.attention".
  AttentionLayer(const std::string& name, const PartContext& context);

  /// x and y [local tokens, hidden].
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  /// Runs the core alone, from the data that forward kept.
  void attend(Saved& saved);
  /// Frees the data that attend() recomputes.
  static void drop_core(Saved& saved);
  /// dx is written. `column_weights`: also computes the weight gradients of column-parallel products, and
  /// with RankSizes::weights_with_inputs those of the last product. Returns its working memory.
  Buffer backward_input(const void* dy, const void* x, void* dx, Saved& saved, const TokenRoom& room,
                        bool column_weights);
  /// `all`: memory for the gathered input of column-parallel products. `with_columns`: also computes their
  /// gradients; without it, only the ones that backward_input() left.
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_columns);

 private:
  int64_t gates() const;  // columns of the gate on this rank
  GateShape gate_shape() const { return {sizes_.tokens, sizes_.attention().outputs(), gates()}; }
  const void* output_input(const Saved& saved) const {
    return gates() > 0 ? saved.gated.data() : saved.core_out.data();
  }
  static Magnitudes of_qkv(const Saved& saved) { return {magnitude_at(saved.magnitudes, 0)}; }
  static Magnitudes of_output(const Saved& saved) { return {magnitude_at(saved.magnitudes, 1)}; }
  void project(const void* x, Saved& saved, const TokenRoom& room);
  void project_with_gate(const void* x, Saved& saved, const TokenRoom& room);
  void join_gate(Saved& saved);
  void project_latents(const void* x, Saved& saved, const TokenRoom& room);
  Buffer shared_key(const void* key_value);
  void backward_project(const void* x, void* dx, Saved& saved, const TokenRoom& room, bool column_weights);
  void backward_latents(const void* x, void* dx, Saved& saved, const TokenRoom& room, bool column_weights);
  void backward_key_value(const Buffer& d_key, void* dx, Saved& saved, const TokenRoom& room,
                          bool column_weights);
  void latent_weights(const void* x, Saved& saved, const Buffer& all, bool with_columns);

  std::optional<Linear> qkv_;    // multi-head attention, or:
  std::optional<Linear> query_;  // queries without a latent
  std::optional<Linear> query_down_, query_up_, key_value_down_, key_value_up_;
  std::optional<Norm> query_norm_, key_value_norm_;
  std::optional<HeadNorm> head_norm_;
  int sinks_ = -1;
  AttentionCore core_;
  Linear output_;
};

}  // namespace mpt::runtime
