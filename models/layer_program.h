// SPDX-License-Identifier: Apache-2.0
#pragma once

// LayerProgram: the operators of one piece of a model (embedding, a decoder layer, the head with the loss) as
// one rank executes them under a layout. The only description of a layer's sizes: cost, memory and profile
// read it, and a conformance test compares the runtime's layers with it.
//
// Memory rules of the runtime, which the byte fields below follow exactly:
//   * an operator's saved_bytes are allocated in forward and freed when the layer's backward ends;
//   * workspaces are freed when the layer's forward (or backward) ends, not earlier.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "models/module.h"
#include "models/operator.h"

namespace mpt::models {

enum class CollectiveKind : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
enum class CollectiveGroup : uint8_t { tensor, context, expert, expert_tensor };

/// Whether copies of tokens go straight to every part of an expert that is split by width.
inline bool sends_to_parts(const Layout& layout) {
  return layout.expert_split() > 1 && layout.execution.traffic.sends_to_expert_parts;
}

/// Rows of the vocabulary's table, and columns of the logits, on one tensor rank.
inline int64_t vocabulary_share(const ModelSpec& model, const Layout& layout) {
  return padded_share(model.vocab, layout.tensor, layout.execution.kernels.vocabulary_multiple);
}

/// Whether the last stage has a separate copy of the token table for its next-token modules.
inline bool copies_token_table(const ModelSpec& model, const Layout& layout) {
  return model.next_token_layers > 0 && layout.pipeline > 1 && !model.tied_embeddings;
}

/// The destinations of the copies of a row. Each copy chooses one.
struct CopyRoute {
  int64_t copies = 1;
  // Destinations form groups of neighbours. The copies of a row go to `groups_of_row` of the groups.
  int64_t groups = 1, groups_of_row = 1;
  bool operator==(const CopyRoute&) const = default;
};

/// A collective of an operator; `bytes` is the whole message, as nccl-tests counts it.
struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  CollectiveGroup group = CollectiveGroup::tensor;
  int64_t bytes = 0;
  bool beside = false;  // may overlap the operator's compute
  // In a backward: may overlap the weight gradient that follows directly.
  bool beside_weight = false;
  // For an all-to-all that sends several copies of a row, but at most one to each rank.
  CopyRoute route = {};
  bool operator==(const Collective&) const = default;
};

/// Collectives of one operator and pass, in order. There are few, and they need no heap memory, since
/// searches make millions of operators.
class Collectives {
 public:
  Collectives() = default;
  Collectives(std::initializer_list<Collective> list) {
    for (const Collective& c : list) push_back(c);
  }
  void push_back(const Collective& c) {
    MPT_CHECK(size_ < list_.size(), "more than {} collectives of one operator", list_.size());
    list_[size_++] = c;
  }
  const Collective* begin() const { return list_.data(); }
  const Collective* end() const { return list_.data() + size_; }
  const Collective& operator[](size_t i) const { return list_[i]; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool operator==(const Collectives&) const = default;

 private:
  std::array<Collective, 3> list_{};
  size_t size_ = 0;
};

struct Operator {
  std::string_view name;  // of a literal: "attention.qkv", "mlp.down"
  Module module{};
  OperatorShape shape;
  int64_t parameters = 0;             // on this rank
  bool expert_parameters = false;     // they belong to routed experts, which have other replicas
  int64_t frozen_bytes = 0;           // of these parameters as stored, if they are not trained
  int64_t offloaded_bytes = 0;        // kept for backward in host memory, in addition to saved_bytes
  int64_t saved_bytes = 0;            // kept from forward to backward without recompute
  int64_t saved_bytes_selective = 0;  // kept with selective recompute
  int64_t forward_workspace_bytes = 0;
  int64_t backward_workspace_bytes = 0;
  int64_t gradient_kept_bytes =
      0;  // of these: kept from the input to the weight gradient, if they are separate
  int64_t weight_workspace_bytes = 0;  // of its weight gradient, if that is separate
  int64_t weight_operand_bytes =
      0;                           // inputs of its weight gradient: the input and the gradient of the output
  double selective_share = 0.0;    // share of its forward that selective recompute runs again
  bool in_epilogue = false;        // the products before and after it compute it and its gradient
  std::array<int64_t, 3> parts{};  // columns of its weights, if other frameworks have several
  Collectives forward_collectives{};
  Collectives backward_collectives{};
  bool operator==(const Operator&) const = default;
};

struct LayerProgram {
  std::vector<Operator> operators;
  size_t kind = 0;                // of a decoder layer: its index in the model's LayerKinds
  int64_t input_bytes = 0;        // the piece's input, which is all that full recompute keeps
  bool recomputed_whole = false;  // Kept::recomputes_whole_layer
};

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
/// separate, and the bytes of frozen ones.
struct ParameterShare {
  int64_t dense = 0;
  int64_t expert = 0;
  int64_t frozen_bytes = 0, frozen_expert_bytes = 0;
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
