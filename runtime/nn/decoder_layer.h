// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecoderLayer: attention and MLP with their residuals, as the LayerProgram of models/layer_program.h
// describes them. Tensors are [tokens, columns of this rank]; those beside norms and residuals hold the
// rank's own tokens with sequence parallelism.
//
// Memory: what a Saved holds lives from forward to the end of this layer's backward; everything else is freed
// when the call that made it returns. An output buffer passes to the caller.

#include <optional>

#include "runtime/nn/attention_core.h"
#include "runtime/nn/experts.h"
#include "runtime/nn/head_norm.h"
#include "runtime/nn/linear.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class DecoderLayer {
 public:
  /// What forward keeps for backward; after backward_input also what the weight gradients need.
  struct Saved {
    Buffer input, norm1_statistics, norm1_out, unnormed_heads, qkv, log_sum_exp, core_out;
    Buffer middle, norm2_statistics, norm2_out, up, activated;
    Experts::Saved experts;
    // gradients kept from backward_input to backward_weight; those of row-parallel outputs for all tokens
    // where they had to be gathered
    Buffer d_output, d_up, d_norm2_out, d_middle, d_qkv, d_norm1_out;
    Buffer d_output_gathered, d_middle_gathered, d_head_scales;
    bool has_column_weights = false;  // backward_input made the weight gradients of column-parallel products
  };

  /// Begins a piece of `parameters`.
  DecoderLayer(int64_t index, Recompute recompute, const RankSizes& sizes, Parameters& parameters,
               const LayerGroups& groups, Device& device);

  /// Of the loss's gradient: what the experts' load-balancing loss is weighed against.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  size_t piece() const { return piece_; }
  /// Residual additions at a layer's ends, which a norm can do on its way.
  struct Residual {
    const void* lacking = nullptr;  // what is still to be added to the input
    bool left = false;              // the output lacks saved.middle, and the caller sees to it
  };
  /// Takes the input over into `saved`; returns the output.
  Buffer forward(Buffer input, Saved& saved, const Residual& residual);
  /// With full recomputation the middle is not kept.
  bool can_leave_residual() const { return recompute_ != Recompute::full; }
  /// `d_output` may be empty where `d_output_data` points to memory that is not this layer's (a transfer
  /// slot). With `column_weights` the weight gradients of column-parallel products are made on the way, each
  /// beside the sum of its input's gradient; the piece's gradients must have begun.
  Buffer backward_input(Saved& saved, Buffer d_output, const void* d_output_data, bool column_weights);
  void backward_weight(Saved& saved, const void* d_output_data);
  /// As Experts::take_loads; none of a dense layer.
  std::vector<double> take_expert_loads() {
    return experts_ ? experts_->take_loads() : std::vector<double>{};
  }

 private:
  Buffer tokens_by(int64_t columns) const { return {device_, sizes_.token_bytes(columns)}; }
  Buffer local_by(int64_t columns) const { return {device_, sizes_.local_bytes(columns)}; }
  int64_t local_count() const { return sizes_.local_tokens * sizes_.hidden; }
  /// Attention; `projected`, memory for [local tokens, hidden], gets its output without the residual.
  void forward_to_middle(Saved& saved, const void* lacking, void* projected, const TokenRoom& room);
  void attend(Saved& saved);
  /// The residual, the norm, and the MLP to its output [local tokens, hidden]; recomputation stops short of
  /// the output.
  void forward_mlp(Saved& saved, const void* projected, void* output, const TokenRoom& room);
  void recompute(Saved& saved, const TokenRoom& room);
  // Each returns the gradient it worked with: workspaces live until the layer's backward ends.
  Buffer backward_mlp(Saved& saved, const void* d_output, const TokenRoom& room);
  Buffer backward_attention(Saved& saved, const TokenRoom& room);
  void keep_only_what_is_asked(Saved& saved);

  size_t piece_;
  Recompute recompute_;
  const RankSizes& sizes_;
  Device& device_;
  Norm norm1_;
  Linear qkv_, attention_output_;
  AttentionCore core_;
  std::optional<HeadNorm> head_norm_;
  Norm norm2_;
  std::optional<Linear> up_, down_;  // a dense MLP,
  std::optional<Experts> experts_;   // or one of experts
  double loss_scale_ = 1.0;
};

}  // namespace mpt::runtime
