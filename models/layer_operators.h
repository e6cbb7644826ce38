// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operators of a LayerProgram (models/layer_program.h), with their parameters, bytes and collectives.
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
#include "core/layout.h"
#include "core/model_spec.h"
#include "models/module.h"
#include "models/operator.h"

namespace mpt::models {

enum class CollectiveKind : uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all };
enum class CollectiveGroup : uint8_t { tensor, context, expert, expert_tensor };

/// Whether copies of tokens go straight to every part of an expert that is split by width.
inline bool sends_to_parts(const Layout& layout) {
  return layout.expert_split() > 1 && layout.execution->traffic.sends_to_expert_parts;
}

/// Rows of the vocabulary's table, and columns of the logits, on one tensor rank.
inline int64_t vocabulary_share(const ModelSpec& model, const Layout& layout) {
  return padded_share(model.vocab, layout.tensor, layout.execution->kernels.vocabulary_multiple);
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
  int64_t scale_bytes = 0;            // of their scales, which no framework shards
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

}  // namespace mpt::models
