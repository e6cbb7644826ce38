// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankSizes: a model's sizes on one rank of a stage, for one micro-batch, and the sizes of layers of one
// kind.
//
// With context parallelism a rank holds its part of every sequence. With sequence parallelism the ranks of a
// tensor group split those tokens among themselves between products that need them all: "local" tokens.

#include <cstdint>
#include <vector>

#include "core/layout.h"
#include "core/model_spec.h"
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/side_stream.h"

namespace mpt::runtime {

struct RankSizes {
  /// `sequence_length` is that of whole sequences. The kind is that of the lowest layer.
  RankSizes(const ModelSpec& model, const Layout& layout, int64_t sequence_length, DataType element,
            int tensor_rank, int context_rank = 0);
  /// The same sizes for layers of another kind.
  RankSizes of(const LayerKind& other) const;

  ModelSpec model;
  LayerKind kind;
  DataType type;
  int64_t tensor, tensor_rank;
  bool sequence_parallel;
  bool fp8;                  // products of decoder layers except routers; the head's stay in 16 bits
  bool overlaps_tensor;      // collectives of the tensor group overlap with products
  bool keeps_fp8_weights;    // weights in 8 bits stay from one step to the next
  bool weights_with_inputs;  // whole backwards compute both gradients of a product at once
  int64_t expert_split;      // parts of each expert, if experts are spread over ranks
  int64_t context;
  ContextMethod context_method;
  int64_t batch, sequence, tokens, hidden;                 // sequence: of this rank
  int64_t local_tokens, first_local;                       // the part of the tokens for norms and residuals
  int64_t heads = 0, kv_heads = 0, head_dim = 0, ffn = 0;  // on this rank
  int64_t vocab_first, vocab_used, vocab_rows;             // words of this rank; rows include padding
  std::vector<double> frequencies;                         // of rotary positions; empty without them
  double rotary_factor = 1.0;                              // on rotated elements
  double score_scale = 0.0;                                // as in AttentionShape
  std::vector<int32_t> positions;                          // of this rank's part of a sequence
  std::vector<int32_t> local_positions;                    // of the local tokens
  // [local token][tensor rank]: its rows if the parts of ranks are stored one after the other.
  std::vector<int32_t> rows_of_parts;

  /// Bytes for the largest magnitudes that a part of a layer keeps for its products of 8 bits, each in one
  /// slot.
  static constexpr int64_t kMagnitudeBytes = 64;

  int64_t unit() const { return size_of(type); }
  int64_t state_unit() const { return size_of(state_type_of(type)); }
  int64_t token_bytes(int64_t columns) const { return tokens * columns * unit(); }
  int64_t local_bytes(int64_t columns) const { return local_tokens * columns * unit(); }
  /// Bytes of numbers kept in full precision: statistics, maxima, sums.
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

/// Copies of the groups of LayerGroups for host memory: lists of choices and counts.
struct ListGroups {
  Communicator* tensor = nullptr;
  Communicator* context = nullptr;
  Communicator* expert = nullptr;
};

/// The communication groups of a layer's ranks.
struct LayerGroups {
  Communicator* tensor = nullptr;
  Communicator* context = nullptr;
  // Ranks that hold different experts, or parts of them; may be null for models without experts.
  Communicator* expert = nullptr;
  BesideCompute ring{};  // sends blocks of keys and values during work on others
  // A copy of the tensor group for communication during products, and its stream; null: there is none.
  Communicator* tensor_beside = nullptr;
  BesideCompute products{};
  // Null if there are no experts, or if one rank has all of them.
  ListGroups lists{};
};

/// Positions of the `sequence` tokens that a context rank holds of each sequence. For a ring they are one
/// piece from the front and one from the back, else one run.
std::vector<int32_t> context_positions(int64_t sequence, int64_t ranks, int64_t rank, ContextMethod method);

/// The element type of a layout's computation.
DataType compute_type(Precision precision);

}  // namespace mpt::runtime
