// SPDX-License-Identifier: Apache-2.0
#pragma once

// GatedDeltaLayer: Gated DeltaNet (arXiv:2412.06464), as Qwen3-Next has it. One product makes queries, keys
// and values, a gate on the output, and the two gates of each head. A short convolution of every channel goes
// before the delta rule, and a gated norm of each head behind it. Tensor ranks have whole key heads and the
// heads that share them.
//
// The convolution and the states of the rule are made again on the way back: what stays is what the first
// product made, what the rule gave, and what the last product read.

#include <optional>
#include <string>

#include "runtime/nn/linear.h"

namespace mpt::runtime {

class GatedDeltaLayer {
 public:
  struct Saved {
    Buffer projected, core_out, normed;
    // From backward_input to backward_weight. d_weights: of the convolution, decays, step biases and the
    // norm.
    Buffer d_projected, d_output_gathered, d_weights;
  };

  /// `name`: of the parameters, "layers.0.mixer".
  GatedDeltaLayer(const std::string& name, const RankSizes& sizes, Parameters& parameters,
                  const LayerGroups& groups, Device& device);

  // As AttentionLayer's.
  void forward(const void* x, void* y, Saved& saved, const TokenRoom& room);
  Buffer backward_input(const void* dy, const void* x, void* dx, Saved& saved, const TokenRoom& room,
                        bool column_weights);
  void backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all, bool with_columns);

 private:
  struct Weights {
    void *convolution, *decay, *step_bias, *norm;
  };
  const LinearMixer& mixer() const { return *sizes_.kind.linear; }
  int64_t channels() const { return delta_.columns(); }
  int64_t row() const { return delta_.row; }
  int64_t convolution_weights() const { return channels() * mixer().convolution; }
  Buffer tokens_by(int64_t columns) const { return {device_, sizes_.token_bytes(columns)}; }
  Buffer numbers(int64_t count) const { return {device_, count * sizes_.state_unit()}; }
  char* column(const Buffer& rows, int64_t at) const {
    return static_cast<char*>(rows.data()) + at * sizes_.unit();
  }
  int add_weight(const std::string& name, std::vector<ShardBlock> blocks, double start, double deviation);
  int add_norm(const std::string& name);
  ConvolutionShape convolution() const;
  GatedNormShape gated_norm() const;
  DeltaInputs inputs(const Buffer& qkv, const Saved& saved);
  Weights gradients(const Buffer& all) const;
  Buffer convolve(const Saved& saved);
  void backward_convolution(const Buffer& d_qkv, Saved& saved);

  const RankSizes& sizes_;
  Parameters& parameters_;
  Device& device_;
  const DeltaShape delta_;
  Linear input_;
  int convolution_ = -1, decay_ = -1, step_bias_ = -1, norm_ = -1;
  Linear output_;
};

}  // namespace mpt::runtime
