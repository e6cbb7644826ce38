// SPDX-License-Identifier: Apache-2.0
#pragma once

// Footprints: the bytes of each virtual stage under a layout, summed over the stage's layer programs. lower()
// and the memory prediction read them, and a run's arena must measure the same.

#include <array>
#include <memory>
#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "core/stage_footprint.h"
#include "models/piece_programs.h"

namespace mpt::models {

/// A use of memory. To see how much of a peak it is, it is made larger by a kPart-th.
enum class MemoryUse { none, logits, gathered, reduced };
inline constexpr int64_t kPart = 4096;

/// `bytes` of a use, larger if that is the one.
inline int64_t enlarged(int64_t bytes, MemoryUse use, MemoryUse enlarged) {
  return use == enlarged ? bytes + bytes / kPart : bytes;
}

/// Elements of a stage's flat buffers.
struct StateCounts {
  int64_t whole = 0;         // with the padding that makes shares equal
  int64_t share = 0;         // on one rank; all of it without ZeRO
  int64_t largest = 0;       // one full piece, which ZeRO gathers before use and scatters after it
  int64_t largest_pair = 0;  // two neighbours: one at work while the next is gathered
  // Frozen weights in bytes: all, share, largest piece, scales. Then the share with AdamW, not another
  // optimizer.
  int64_t frozen_bytes = 0, frozen_share_bytes = 0, largest_frozen_bytes = 0, scale_bytes = 0;
  int64_t adam_share = 0;
  int64_t wide_share = 0;  // parameters with wide moments if the others have 8 bits
  int64_t more_sums = 0;   // of gradients: rows of other tensor ranks, and second ones of the head
  MemoryUse enlarged = MemoryUse::none;
};

/// Adds what stays for a whole step.
void add_state(const Layout& layout, const StateCounts& counts, StageFootprint& footprint);
/// Raises the weights of a finished footprint where more bytes are there before the first step.
void add_start(const Layout& layout, const StateCounts& counts, StageFootprint& footprint);

/// The pieces of a model under one split of its layers (tensor, context and expert degrees, micro-batch,
/// precision). The footprints of all pipelines, shardings and recomputes over that split are sums of them.
/// Each kind of layer is described once.
class StagePieces {
 public:
  /// A trained weight in frameworks that fuse no weights: sharding cuts its rows.
  struct Weight {
    int64_t rows = 0, columns = 0;
    bool expert = false;
    bool operator==(const Weight&) const = default;
  };
  /// The memory of one piece; the index of arrays is Recompute.
  struct Piece {
    std::array<int64_t, 3> kept{};  // from forward to backward
    int64_t computed = 0;           // activations of its forward, before recomputed ones are dropped
    int64_t forward_workspace = 0;
    int64_t backward_workspace = 0;
    int64_t gradient_kept = 0;
    int64_t weight_workspace = 0;
    int64_t weight_operands = 0;
    ParameterShare parameters;
    std::vector<Weight> weights;
    double orthogonal_flop = 0.0;  // of Muon's Newton-Schulz steps over all of them
    int64_t fp8_weights = 0;       // for this project's runtime: each weight in both orders, and a factor
    bool operator==(const Piece&) const = default;
  };

  StagePieces(const ModelSpec& model, const Layout& layout, int64_t sequence);
  /// The model must outlive it, the programs need not. The second argument, which may be null, has the pieces
  /// of a split that differs only in the placement of experts.
  explicit StagePieces(PiecePrograms& programs, const StagePieces* alike = nullptr);
  explicit StagePieces(PiecePrograms&& programs) : StagePieces(programs) {}

  void enlarge(MemoryUse use);

  /// Stage `s` of `layout`, which must have the split that the pieces were made for.
  StageFootprint footprint(const Layout& layout, const StageContent& content, size_t s) const;
  ParameterShare parameters(const StageContent& content) const;
  ParameterShare parameters(const KindCounts& layers, bool embedding, bool head) const;
  /// `share` with the padding by whole rows, as collectives of sharded weights transfer it.
  ParameterShare padded(ParameterShare share, const Layout& layout, const KindCounts& layers, bool embedding,
                        bool head) const;
  /// Weights that are gathered with the head: its own, or the table that it shares with its stage's
  /// embedding.
  ParameterShare gathered_with_head(const Layout& layout, bool embedding) const;
  /// FLOP of Newton-Schulz steps over the matrices of these layers on one rank.
  double orthogonal_flop(const KindCounts& layers) const;
  /// Bytes that any rank with a layer needs in addition to its parameters during a layer's backward: the
  /// least over all kinds of layers.
  int64_t least_layer_bytes() const;
  const Piece& embedding() const { return embedding_; }
  const Piece& head() const { return head_; }
  int64_t boundary_bytes() const { return boundary_bytes_; }
  const LayerKinds& kinds() const { return *kinds_; }

 private:
  /// Bytes that are there while a piece runs, with Execution::frees_pieces: gathered weights in its forward
  /// and in its backward, whole gradients, and the copy that is reduced. Then what stays after its backward:
  /// the gradients that the first one makes, and more, or less, until the last piece's has run. Last, what
  /// waits for the end of the stage's forward.
  struct AtWork {
    int64_t forward = 0, backward = 0, gradients = 0, reduced = 0, late = 0, stays = 0, waits = 0;
  };
  /// Equal pieces in a row.
  struct Held {
    const Piece* piece;
    Recompute recompute;
    int64_t gradient_in;  // gradient that arrives from the piece above; 0 from a transfer slot or the loss
    int64_t times = 1;
    AtWork at_work{};
    int64_t kept() const { return piece->kept[size_t(recompute)]; }
    int64_t made_again() const { return piece->computed - kept(); }
  };
  std::vector<Held> pieces_of(const Layout& layout, const StageContent& content, size_t s) const;
  int64_t wide_share(const Layout& layout, const Piece& piece, bool without_table) const;
  // Parameters by which the shares of a piece exceed it if shares are whole rows.
  int64_t padding(const Layout& layout, const Piece& piece, bool without_table, bool of_experts) const;
  /// Also sets what each piece has while it runs.
  StateCounts state_counts(const Layout& layout, const StageContent& content, std::vector<Held>& held) const;
  void set_at_work(const Layout& layout, Held& piece, int64_t parameters, int64_t whole, int64_t share,
                   int64_t frozen_bytes, bool ties) const;
  /// Parameters of the token table on other tensor ranks. This rank has their gradients, too.
  int64_t other_tables(const Layout& layout, const Piece& piece) const;
  void set_split_workspaces(const Layout& layout, const std::vector<Held>& pieces,
                            const StageContent& content, StageFootprint& footprint) const;
  static int64_t forward_peak(const std::vector<Held>& pieces);
  static int64_t input_gradient_peak(const std::vector<Held>& pieces, int64_t held);
  static int64_t backward_peak(const std::vector<Held>& pieces, int64_t held, bool first);

  void set_layers(PiecePrograms& programs, const StagePieces* alike);
  void set_head(const LayerProgram& program, const Execution& execution);
  void set_next_token(PiecePrograms& programs);
  void work_at_once();
  void set_empty_gradients(Precision precision);

  bool is_next_token(const Held& held) const {
    return any_of(next_token_, [&](const Piece& piece) { return &piece == held.piece; });
  }
  bool is_layer(const Held& held) const {
    return held.piece != &embedding_ && held.piece != &head_ && !is_next_token(held);
  }
  int64_t borrowed_parameters(const Held& held, const StageContent& content) const;

  const ModelSpec& model_;
  std::shared_ptr<const LayerKinds> kinds_;
  std::vector<Piece> layers_;          // pieces that differ in bytes or parameters
  std::vector<size_t> layer_of_kind_;  // index into layers_
  Piece embedding_, head_;
  // For each next-token module in turn: its input, its layer, and its head.
  std::vector<Piece> next_token_;
  // Trained parameters of the token table that the modules read, and of their copy of it.
  int64_t table_parameters_ = 0, copied_table_ = 0;
  int64_t tied_frozen_bytes_ = 0;
  int64_t tied_parameters_ = 0;  // of the head; the embedding has them already if both are on one stage
  int64_t position_parameters_ = 0;
  int64_t boundary_bytes_ = 0;
  // Shapes of weight gradients of layers without experts, and of those with experts: each once.
  std::vector<std::array<int64_t, 2>> dense_gradient_shapes_, expert_gradient_shapes_;
  int64_t empty_gradient_bytes_ = 0;  // Execution::empty_gradients, of one layer of each kind
  int64_t freed_logits_ = 0;          // Execution::frees_logits
  MemoryUse enlarged_ = MemoryUse::none;
};

/// Whether the first and the last stage both have gradients for the token table. The head is tied to it, or
/// next-token modules read it. Source: megatron/core/distributed/finalize_model_grads.py.
inline bool trains_shared_table(const ModelSpec& model, const Layout& layout) {
  if (layout.training->freezes(FrozenPart::embedding)) return false;
  return model.next_token_layers > 0 ||
         (model.tied_embeddings && !layout.training->freezes(FrozenPart::head));
}

/// Ranks over which the state of dense weights, and of routed experts, is shared out: 1 without ZeRO.
int64_t dense_shard(const Layout& layout);
int64_t expert_shard(const Layout& layout);

/// AdamW moves as many bytes for this many parameters as the layout's optimizer moves for `parameters`.
int64_t updated_like_adamw(const Layout& layout, int64_t parameters);

/// Whether gathered weights and whole gradients of a piece are freed when it has run.
inline bool frees_pieces(const Layout& layout) {
  return layout.execution->states.frees_pieces && layout.zero_of_micro_batch() >= 2;
}

/// Whether the head's whole gradient is summed while a loss by chunks runs.
inline bool sums_head_by_chunks(const Layout& layout) {
  const Kernels& kernels = layout.execution->kernels;
  return kernels.loss == LossKernel::chunked && kernels.loss_chunks > 0 && layout.zero >= 2;
}

/// Whether a stage has no gradients before its first backward of a step.
inline bool makes_gradients_late(const Layout& layout) {
  const StateBytes& states = layout.execution->states;
  return states.late_gradients || (states.frees_pieces && layout.zero >= 2);
}

/// Bytes of a parameter in the gradients that a rank keeps. FSDP2 keeps full sums in the type in which it
/// reduces them (torch 2.15.0, _fsdp_param.py).
int64_t gradient_sum_bytes(const Layout& layout);

/// State of the parameters in `share`, without the memory for ZeRO's gathering.
int64_t least_state_bytes(const Layout& layout, const ParameterShare& share);

/// Whether two stages of one layout have equal footprints if equal numbers of their layers recompute.
bool stages_alike(const LayerKinds& kinds, const StageContent& a, const StageContent& b);

/// Bytes of the optimizer's state that a rank has in host memory, by virtual stage: moments and master
/// weights. In fp32 these are separate from the device's weights. All 0 without offload.
std::vector<int64_t> host_state_bytes(const ModelSpec& model, const Layout& layout, const Workload& workload);

/// Contents of a checkpoint: weights as they are in memory, in fp32, or both, with frozen ones; and moments.
struct CheckpointBytes {
  int64_t weights = 0, moments = 0;
};
CheckpointBytes checkpoint_bytes(const ModelSpec& model, const Layout& layout, bool in_memory, bool masters);

/// One per virtual stage, in model order. First and last stage share the tied embedding if they are separate.
std::vector<StageFootprint> stage_footprints(const ModelSpec& model, const Layout& layout,
                                             const Workload& workload);
std::vector<StageFootprint> stage_footprints(const StagePieces& pieces, const ModelSpec& model,
                                             const Layout& layout);

}  // namespace mpt::models
