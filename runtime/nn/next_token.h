// SPDX-License-Identifier: Apache-2.0
#pragma once

// NextToken: a module that predicts one more token (DeepSeek-V3, arXiv:2412.19437, section 2.2). It reads the
// input of the product in the preceding head, and the embedding of the token that this head predicts. A
// decoder layer like the model's last one follows, and a head with another norm. Token table and output
// weight are the model's.
//
// Each part is a piece of Parameters, in the order of the forward pass.

#include <string>

#include "runtime/nn/decoder_layer.h"
#include "runtime/nn/embedding.h"
#include "runtime/nn/head.h"

namespace mpt::runtime {

/// Both halves are normalised and projected, and the projections are added. That equals one projection of
/// both halves concatenated.
class NextTokenInput : private Part {
 public:
  struct Saved {
    Embedding::Saved tokens;
    Buffer embedded;
    DecoderLayer::SavedNorm embedding_norm, norm;
    Buffer d_output, d_embedded;  // from backward_input to backward_weight
  };

  /// Begins a piece of `parameters`. `name`: "next_token.0"; `table`: index of the token table.
  NextTokenInput(const std::string& name, int table, const PartContext& context);

  size_t piece() const { return piece_; }
  /// `hidden` [local tokens, hidden] must live until the backward is done.
  Buffer forward(const int32_t* tokens, const void* hidden, Saved& saved);
  /// Returns the gradient of `hidden`.
  Buffer backward_input(Saved& saved, const void* hidden, Buffer d_output);
  void backward_weight(const Saved& saved, const void* hidden);

 private:
  size_t piece_;
  Embedding embedding_;
  Norm embedding_norm_, norm_;
  Linear embedding_projection_, projection_;
};

struct NextToken {
  struct Saved {
    NextTokenInput::Saved input;
    DecoderLayer::Saved layer;
    Head::Saved head;
  };

  /// `depth` from 0. `layer_sizes`: of the last decoder layer's kind. `output`: index of the head's weight.
  NextToken(int64_t depth, int table, int output, const PartContext& context, const RankSizes& layer_sizes);

  NextTokenInput input;
  DecoderLayer layer;
  Head head;
};

}  // namespace mpt::runtime
