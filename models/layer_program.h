// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerProgram: the operators of one piece of a model (embedding, a decoder layer, the head with the loss) as
// one rank executes them under a layout. The only description of a layer's sizes: cost, memory and profile
// read it, and a conformance test compares the runtime's layers with it.

#include "core/layout.h"
#include "core/model_spec.h"
#include "models/layer_operators.h"

namespace mpt::models {

/// Operators of a decoder layer for one micro-batch of `layout.micro_batch` sequences of `sequence` tokens.
/// `kind` of the result is not set.
LayerProgram layer_program(const ModelSpec& model, const LayerKind& kind, const Layout& layout,
                           int64_t sequence);
/// Operators of decoder layer `layer` (0-based).
LayerProgram layer_program(const ModelSpec& model, int64_t layer, const Layout& layout, int64_t sequence);
LayerProgram embedding_program(const ModelSpec& model, const Layout& layout, int64_t sequence);
/// Final norm, output projection and loss.
LayerProgram head_program(const ModelSpec& model, const Layout& layout, int64_t sequence);
/// A next-token module predicts one more token (DeepSeek-V3, arXiv:2412.19437, section 2.2). It projects the
/// input of the head's product and the next token's embedding. A layer like the last decoder layer follows,
/// and the head with another norm. All are on the last stage, which also needs the token table. These two
/// functions give the first and the last part of module `depth`.
LayerProgram next_token_input_program(const ModelSpec& model, const Layout& layout, int64_t sequence,
                                      int64_t depth);
LayerProgram next_token_head_program(const ModelSpec& model, const Layout& layout, int64_t sequence);
/// The head and all next-token modules. `layer`: the last decoder layer's program, if it exists already.
LayerProgram last_stage_program(const ModelSpec& model, const Layout& layout, int64_t sequence,
                                const LayerProgram* layer = nullptr);

/// Trained parameters of one rank, with routed experts and all others
/// separate, and the bytes of frozen ones. Each rank has their scales whole.
struct ParameterShare {
  int64_t dense = 0;
  int64_t expert = 0;
  int64_t frozen_bytes = 0, frozen_expert_bytes = 0, scale_bytes = 0;
  int64_t total() const { return dense + expert; }
  bool operator==(const ParameterShare&) const = default;
};
ParameterShare parameter_share(const LayerProgram& program);
/// All parameters, including frozen ones.
int64_t parameters(const LayerProgram& program);
int64_t saved_bytes(const LayerProgram& program, Recompute recompute);

/// Model FLOP (forward and backward, no recompute) of one token at the given sequence length. Causal
/// attention counts as the half that is computed. Narayanan et al. 2021 (arXiv:2104.04473), appendix, which
/// counts the full square of attention.
double model_flop_per_token(const ModelSpec& model, int64_t sequence, const Training& training = {});

}  // namespace mpt::models
