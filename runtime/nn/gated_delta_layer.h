// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatedDeltaLayer: Gated DeltaNet (arXiv:2412.06464), in Qwen3-Next's form. One product computes queries,
// keys and values, an output gate, and the two gates of each head. A short convolution of every channel
// precedes the delta rule, and a gated norm of each head follows it. Tensor ranks have whole key heads and
// the heads that share them.
//
// The backward recomputes the convolution and the states of the rule. Kept are the output of the first
// product, that of the rule, and the input of the last product.
//
// Context ranks exchange heads for tokens before the convolution, and back after the rule: each has whole
// sequences of its share of the heads.

#include <string>

#include "runtime/nn/head_exchange.h"
#include "runtime/nn/linear.h"

namespace mpt::runtime {

class GatedDeltaLayer : private Part {
 public:
  struct Saved {
    Buffer projected;                     // or, over context ranks, its parts:
    Buffer channels, gates, output_gate;  // the first two of all tokens
    Buffer core_out, normed;
    // From backward_input to backward_weight. d_weights: of the convolution, decays, step biases and the
    // norm.
    Buffer d_projected, d_output_gathered, d_weights;
    Buffer magnitudes;  // in 8 bits
  };

  /// `name`: of the parameters, "layers.0.mixer".
  GatedDeltaLayer(const std::string& name, const PartContext& context);

  // Like AttentionLayer's.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  Buffer backward_input(const void* dy, const void* x, void* dx, Saved& saved, const TokenRoom& room,
                        bool column_weights);
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_columns);

 private:
  struct Weights {
    char *convolution, *decay, *step_bias, *norm;
  };
  // A part of a row, and the stride of rows.
  struct Columns {
    char* data;
    int64_t row;
  };
  static Magnitudes of_input(const Saved& saved) { return {magnitude_at(saved.magnitudes, 0)}; }
  static Magnitudes of_output(const Saved& saved) { return {magnitude_at(saved.magnitudes, 1)}; }
  const LinearMixer& mixer() const { return *sizes_.kind.linear; }
  bool exchanges() const { return exchange_.ranks() > 1; }
  // Columns of this rank's tokens: channels of the convolution, the output gate, and b and a.
  int64_t channels() const { return delta_.columns() * exchange_.ranks(); }
  int64_t values() const { return delta_.values() * exchange_.ranks(); }
  int64_t heads() const { return delta_.heads * exchange_.ranks(); }
  int64_t row() const { return channels() + values() + 2 * heads(); }
  int64_t convolution_weights() const { return channels() * mixer().convolution; }
  HeadParts channel_parts() const;
  HeadParts value_parts() const { return {{heads()}, delta_.head_dim}; }
  HeadParts gate_parts() const { return {{heads(), heads()}, 1}; }

  Buffer all_tokens_by(int64_t columns) const { return {device_, delta_.tokens() * columns * sizes_.unit()}; }
  Columns part_of(const Buffer& rows, int64_t first) const {
    return {beyond(rows.data(), first * sizes_.unit()), row()};
  }
  // With an exchange the part has separate memory, with contiguous rows.
  Columns part_of(const Saved& saved, int64_t first, const Buffer& exchanged, int64_t columns) const {
    return exchanges() ? Columns{static_cast<char*>(exchanged.data()), columns}
                       : part_of(saved.projected, first);
  }
  Columns channels_of(const Saved& saved) const {
    return part_of(saved, 0, saved.channels, delta_.columns());
  }
  Columns output_gate_of(const Saved& saved) const {
    return part_of(saved, channels(), saved.output_gate, values());
  }
  Columns gates_of(const Saved& saved) const {
    return part_of(saved, channels() + values(), saved.gates, 2 * delta_.heads);
  }

  GatedNormShape gated_norm(const Saved& saved) const;
  ConvolutionShape convolution(int64_t row) const {
    return {delta_.batch, delta_.sequence, delta_.columns(), mixer().convolution, row};
  }
  DeltaInputs inputs(const Buffer& qkv, const Saved& saved);
  Weights gradients(const Buffer& all) const;
  void project(const void* x, Saved& saved, const TokenRoom& room);
  Buffer dense(const Columns& from, int64_t columns) const;
  Buffer own_weights();
  template <class F>
  void for_each_run(F&& body) const;
  Buffer convolve(const Saved& saved);
  void backward_core(const Buffer& through_norm, const Weights& d, Saved& saved);
  void backward_convolution(const Buffer& d_qkv, const Columns& d_channels, char* d_weights, Saved& saved);
  void backward_exchanged(const Buffer& d_qkv, const Buffer& d_gates, const Weights& d, Saved& saved);

  const HeadExchange exchange_;
  const DeltaShape delta_;  // for all tokens and this rank's share of the heads
  Linear input_;
  int convolution_ = -1, decay_ = -1, step_bias_ = -1, norm_ = -1;
  Linear output_;
};

}  // namespace mpt::runtime
