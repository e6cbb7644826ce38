// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankSizes: a model's sizes on one rank of a stage, for one micro-batch, and those of the layers of one
// kind.
//
// With context parallelism a rank holds its part of every sequence; with sequence parallelism the ranks of a
// tensor group split those tokens among themselves where no product needs them all: "local" tokens.

#include <cstdint>
#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/timed.h"
#include "runtime/device/device.h"
#include "runtime/device/side_stream.h"

namespace mpt::runtime {

struct RankSizes {
  /// `sequence_length`: of whole sequences. The kind is that of the lowest layer.
  RankSizes(const ModelSpec& model, const Layout& layout, int64_t sequence_length, DataType element,
            int tensor_rank, int context_rank = 0);
  /// The same for layers of another kind.
  RankSizes of(const LayerKind& other) const;

  ModelSpec model;
  LayerKind kind;
  DataType type;
  int64_t tensor, tensor_rank;
  bool sequence_parallel;
  bool fp8;                  // products of decoder layers, but for routers; the head's stays in 16 bits
  bool overlaps_tensor;      // collectives of the tensor group run beside products
  bool keeps_fp8_weights;    // in 8 bits, from one step to the next
  bool weights_with_inputs;  // both gradients of a product are made at once, where the whole backward runs
  int64_t expert_split;      // ways to split each expert where experts are spread over ranks
  int64_t context;
  ContextMethod context_method;
  int64_t batch, sequence, tokens, hidden;      // sequence: of this rank
  int64_t local_tokens, first_local;            // of the tokens, those that norms and residuals work on
  int64_t heads, kv_heads, head_dim, ffn;       // on this rank
  int64_t vocab_first, vocab_used, vocab_rows;  // words of this rank; rows include padding
  std::vector<double> frequencies;              // of rotary positions; none: the kind has none
  double rotary_factor = 1.0;                   // on what they turn
  double score_scale = 0.0;                     // as in AttentionShape
  std::vector<int32_t> positions;               // of this rank's part of a sequence
  std::vector<int32_t> local_positions;         // of the local tokens
  // [local token][tensor rank]: its rows where parts by rank lie one behind the other.
  std::vector<int32_t> rows_of_parts;

  /// Largest magnitudes that a part of a layer keeps for its products of 8 bits, each in a place of its own.
  static constexpr int64_t kMagnitudeBytes = 64;

  int64_t unit() const { return size_of(type); }
  int64_t state_unit() const { return size_of(state_type_of(type)); }
  int64_t token_bytes(int64_t columns) const { return tokens * columns * unit(); }
  int64_t local_bytes(int64_t columns) const { return local_tokens * columns * unit(); }
  /// Numbers kept in full precision: statistics, maxima, sums.
  int64_t state_bytes(int64_t columns) const { return tokens * columns * state_unit(); }
  AttentionShape attention() const;
  LatentShape latent() const;
  NormShape norm() const { return {model.norm, local_tokens, hidden, model.norm_epsilon}; }
  Rotation rotation() const { return {frequencies, positions, rotary_factor}; }
  /// Columns of the widest input that tensor ranks gather.
  int64_t gathered_columns() const;

 private:
  void set_kind();
};

/// The groups of LayerGroups once more, for what is in host memory: lists of choices and counts.
struct ListGroups {
  Communicator* tensor = nullptr;
  Communicator* context = nullptr;
  Communicator* expert = nullptr;
};

/// The groups that a layer's ranks talk in.
struct LayerGroups {
  Communicator* tensor = nullptr;
  Communicator* context = nullptr;
  // Ranks that hold different experts, or parts of them; may be null in a model without.
  Communicator* expert = nullptr;
  BesideCompute ring{};  // where blocks of keys and values go round while others are at work
  // The tensor group once more, for what runs beside products, and where; null: nothing does.
  Communicator* tensor_beside = nullptr;
  BesideCompute products{};
  // Null where there are no experts, or one rank has all of it.
  ListGroups lists{};
};

/// Positions of the tokens that a context rank holds of each sequence, `sequence` of them: for a ring one
/// piece from the front and one from the back, else one run.
std::vector<int32_t> context_positions(int64_t sequence, int64_t ranks, int64_t rank, ContextMethod method);

/// The element type that a layout computes in.
DataType compute_type(Precision precision);

/// Throws UserError that names the first feature of the model that this runtime does not have.
void check_supported(const ModelSpec& model);

}  // namespace mpt::runtime
