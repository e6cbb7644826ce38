// SPDX-License-Identifier: Apache-2.0
#pragma once

// Embedding: token table split by vocabulary over the tensor-parallel group, and learned positions if the
// model has them. The table is "embedding.weight"; a tied head on the same rank also uses it.

#include "runtime/nn/part.h"

namespace mpt::runtime {

/// Adds a table with a row for each token to `parameters`: an output head, or the embedding on the first
/// stage. `replica`: a second copy on the last stage, for a tied model with separate first and last stages,
/// or for next-token modules.
int add_vocabulary_table(const char* name, const RankSizes& sizes, Parameters& parameters, bool replica);

class Embedding : private Part {
 public:
  /// Begins a piece of `parameters`.
  explicit Embedding(const PartContext& context);
  /// Piece `user` only looks up tokens, in a table that is already in `parameters`.
  Embedding(size_t user, int table, const PartContext& context);

  size_t piece() const { return piece_; }
  int table() const { return table_; }
  /// The tokens' ids, kept from forward to backward.
  struct Saved {
    Buffer on_device;
    std::vector<int32_t> ids;
  };
  /// tokens [b, s] -> [local tokens, hidden].
  Buffer forward(const int32_t* tokens, Saved& saved);
  void backward_weight(const Saved& saved, const void* dy);

 private:
  TableShape table_shape() const {
    return {sizes_.tokens, sizes_.hidden, sizes_.vocab_first, sizes_.vocab_used};
  }

  size_t piece_;
  int table_ = -1, positions_ = -1;
};

}  // namespace mpt::runtime
