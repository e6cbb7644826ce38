// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecoderLayer: a mixer (attention or Gated DeltaNet) and an MLP, or one of them, with their norms and
// residuals, as the LayerProgram of models/layer_program.h describes them. Tensors are [tokens, columns of
// this rank]; those beside norms and residuals hold the rank's own tokens with sequence parallelism.
//
// Memory: what a Saved holds lives from forward to the end of this layer's backward; everything else is freed
// when the call that made it returns. An output buffer passes to the caller.

#include <optional>

#include "runtime/nn/attention_layer.h"
#include "runtime/nn/dense_mlp.h"
#include "runtime/nn/experts.h"
#include "runtime/nn/gated_delta_layer.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class DecoderLayer : private Part {
 public:
  /// What a norm keeps, and the gradient of its output.
  struct SavedNorm {
    Buffer statistics, out;
    Buffer d_out;
  };
  /// A norm behind attention or MLP: its input, and the gradient of that. Without one the gradient times
  /// ModelSpec::residual_scale.
  struct SavedPostNorm {
    Buffer input, statistics;
    Buffer d_input;
  };
  /// What forward keeps for backward; after backward_input also what the weight gradients need.
  struct Saved {
    Buffer input, middle;
    SavedNorm norm1, norm2;
    AttentionLayer::Saved attention;
    GatedDeltaLayer::Saved delta;
    SavedPostNorm attention_out, mlp_out;
    DenseMlp::Saved mlp;
    Experts::Saved experts;
    Buffer d_output, d_middle;  // from backward_input to backward_weight
    // backward_input made the weight gradients of column-parallel products, and with
    // RankSizes::weights_with_inputs those of row-parallel ones.
    bool has_column_weights = false;
  };

  /// Begins a piece of `parameters`. `sizes`: of this layer's kind.
  DecoderLayer(int64_t index, Recompute recompute, const PartContext& context);

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
  /// With full recomputation the middle is not kept, and other layers have none.
  bool can_leave_residual() const {
    return recompute_ != Recompute::full && has_mixer() && has_mlp() && !parallel();
  }
  /// `d_output` may be empty where `d_output_data` points to memory that is not this layer's (a transfer
  /// slot). With `column_weights` the weight gradients of column-parallel products are made on the way, each
  /// beside the sum of its input's gradient, and others where RankSizes::weights_with_inputs; the piece's
  /// gradients must have begun.
  Buffer backward_input(Saved& saved, Buffer d_output, const void* d_output_data, bool column_weights);
  void backward_weight(Saved& saved, const void* d_output_data);
  /// As Experts::take_loads; none of a dense layer.
  std::vector<double> take_expert_loads() {
    return experts_ ? experts_->take_loads() : std::vector<double>{};
  }

 private:
  bool parallel() const { return sizes_.model.parallel_residual && has_mixer() && has_mlp(); }
  bool has_mixer() const { return attention_ || delta_; }
  bool has_mlp() const { return mlp_ || experts_; }
  Buffer forward_single(Saved& saved, const void* lacking, const TokenRoom& room);
  Buffer backward_single(Saved& saved, const void* d_output, const TokenRoom& room);
  void add(const void* a, const void* b, void* y) { run(ResidualAdd{local_count(), a, b, y}); }
  // What attention, the MLP and its norm read.
  const void* attention_input(const Saved& saved) const;
  const void* mlp_input(const Saved& saved) const;
  const Buffer& mlp_base(const Saved& saved) const {
    return parallel() || !has_mixer() ? saved.input : saved.middle;
  }
  /// The mixer to its output [local tokens, hidden]. `lacking`: see Residual.
  void forward_attention(Saved& saved, const void* lacking, void* output, const TokenRoom& room);
  /// The middle (input + `attended`, if that is not null), the norm, and the MLP to its output [local tokens,
  /// hidden]; without `output` it stops where all that is kept is made.
  void forward_mlp(Saved& saved, const void* attended, void* output, const TokenRoom& room);
  /// Calls `body` with the layer's mixer and what that keeps.
  template <class Body>
  auto with_mixer(Saved& saved, Body&& body);
  void mix(const void* x, void* y, Saved& saved, const TokenRoom& room);
  // What a part gives goes to the residual times the model's factor.
  void scale_part(void* y) {
    if (sizes_.model.residual_scale) run(Scale{local_count(), *sizes_.model.residual_scale, y, y});
  }
  void normalise(Norm& norm, const void* lacking, const Buffer& x, void* sum, SavedNorm& saved);
  void recompute(Saved& saved, const TokenRoom& room);
  // Each takes the gradient of its output to that of what it read, and returns what it worked with.
  // `beside`: the gradient of a residual beside the norm, added to that of the input; null: none.
  Buffer backward_mlp(Saved& saved, const void* d_output, const void* beside, void* d_input,
                      const TokenRoom& room);
  Buffer backward_attention(Saved& saved, const void* d_output, void* d_input, const TokenRoom& room);
  void through(std::optional<Norm>& norm, const SavedNorm& saved, const Buffer& x, const void* beside,
               void* d_input);
  const void* behind(std::optional<Norm>& norm, SavedPostNorm& saved, const void* d_output);
  void backward_shared(Saved& saved, const void* d_output, void* d_input, const TokenRoom& room);
  void keep_only_what_is_asked(Saved& saved);

  size_t piece_;
  Recompute recompute_;
  std::optional<Norm> norm1_, attention_post_, norm2_, mlp_post_;
  std::optional<AttentionLayer> attention_;  // attention,
  std::optional<GatedDeltaLayer> delta_;     // or Gated DeltaNet
  std::optional<DenseMlp> mlp_;              // a dense MLP,
  std::optional<Experts> experts_;           // or one of experts
  double loss_scale_ = 1.0;
};

}  // namespace mpt::runtime
