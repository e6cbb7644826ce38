// SPDX-License-Identifier: Apache-2.0
#pragma once

// DecoderLayer: a mixer (attention or Gated DeltaNet) and an MLP, or one of them, with their norms and
// residuals, as in the LayerProgram of models/layer_program.h. Tensors are [tokens, columns of this rank].
// With sequence parallelism those at norms and residuals hold the rank's own tokens.
//
// Memory: the buffers of a Saved live from forward to the end of this layer's backward. Every other buffer is
// freed when the call that made it returns. An output buffer passes to the caller.

#include <optional>

#include "runtime/nn/attention_layer.h"
#include "runtime/nn/dense_mlp.h"
#include "runtime/nn/experts.h"
#include "runtime/nn/gated_delta_layer.h"
#include "runtime/nn/norm.h"

namespace mpt::runtime {

class DecoderLayer : private Part {
 public:
  /// Data that a norm keeps, and the gradient of its output.
  struct SavedNorm {
    Buffer statistics, out;
    Buffer d_out;
  };
  /// For a norm after attention or MLP: its input, and the gradient of the input. Without such a norm: the
  /// gradient times ModelSpec::residual_scale.
  struct SavedPostNorm {
    Buffer input, statistics;
    Buffer d_input;
  };
  /// Data that forward keeps for backward. After backward_input: also the inputs of the weight gradients.
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

  /// Begins a piece of `parameters`. `sizes` are those of this layer's kind.
  DecoderLayer(int64_t index, Recompute recompute, const PartContext& context);

  /// The loss's gradient has this scale, and so does the gradient of the experts' load-balancing loss.
  void set_loss_scale(double scale) { loss_scale_ = scale; }
  size_t piece() const { return piece_; }
  /// Residual additions at a layer's ends, which a norm can include.
  struct Residual {
    const void* lacking = nullptr;  // still to be added to the input
    bool left = false;              // the output lacks saved.middle; the caller adds it
  };
  /// Moves the input into `saved`; returns the output.
  Buffer forward(Buffer input, Saved& saved, const Residual& residual);
  /// Full recomputation does not keep the middle, and layers of one part have none.
  bool can_leave_residual() const {
    return recompute_ != Recompute::full && has_mixer() && has_mlp() && !parallel();
  }
  /// `d_output` may be empty if `d_output_data` points to memory that is not this layer's (a transfer slot).
  /// `column_weights`: also computes the weight gradients of column-parallel products, each overlapped with
  /// the reduction of its input's gradient, and others with RankSizes::weights_with_inputs. Then
  /// begin_gradients() must have been called for the piece.
  Buffer backward_input(Saved& saved, Buffer d_output, const void* d_output_data, bool column_weights);
  void backward_weight(Saved& saved, const void* d_output_data);
  /// Like Experts::take_loads; none for a dense layer.
  std::vector<double> take_expert_loads() {
    return experts_ ? experts_->take_loads() : std::vector<double>{};
  }

 private:
  bool parallel() const { return sizes_.model.parallel_residual && has_mixer() && has_mlp(); }
  bool has_mixer() const { return attention_ || delta_; }
  bool has_mlp() const { return mlp_ || experts_; }
  Buffer forward_single(Saved& saved, const void* lacking, const TokenRoom& room);
  Buffer backward_single(Saved& saved, const void* d_output, const TokenRoom& room);
  // The inputs of attention, of the MLP and of its norm.
  const void* attention_input(const Saved& saved) const;
  const void* mlp_input(const Saved& saved) const;
  const Buffer& mlp_base(const Saved& saved) const {
    return parallel() || !has_mixer() ? saved.input : saved.middle;
  }
  /// Runs the mixer up to its output [local tokens, hidden]. `lacking`: see Residual.
  void forward_attention(Saved& saved, const void* lacking, void* output, const TokenRoom& room);
  /// Computes the middle (input + `attended`, if that is not null), the norm, and the MLP up to its output
  /// [local tokens, hidden]. Without `output` it stops once all kept data exists.
  void forward_mlp(Saved& saved, const void* attended, void* output, const TokenRoom& room);
  /// Calls `body` with the layer's mixer and its saved data.
  template <class Body>
  auto with_mixer(Saved& saved, Body&& body);
  /// Calls `body` with the place for a part's output, and applies the norm that follows the part, if any.
  template <class Body>
  void with_post_norm(std::optional<Norm>& norm, SavedPostNorm& saved, void* output, Body&& body);
  // Multiplies a part's output by the model's residual scale.
  void scale_part(void* y) { scale(sizes_.model.residual_scale, y); }
  void normalise(Norm& norm, const void* lacking, const Buffer& x, void* sum, SavedNorm& saved);
  void recompute(Saved& saved, const TokenRoom& room);
  // Each computes the gradient of its input from that of its output, and returns its working memory.
  // `beside`: the gradient of the residual path, added to the input's; null: none.
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
