// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/embedding.h"

namespace mpt::runtime {

int add_token_table(const RankSizes& sizes, Parameters& parameters, bool replica) {
  Parameter table;
  table.name = "embedding.weight";
  table.global_rows = sizes.model.vocab;
  table.global_columns = sizes.hidden;
  table.blocks = {{sizes.vocab_first, sizes.vocab_used, 0, sizes.hidden}};
  table.padding_rows = sizes.vocab_rows - sizes.vocab_used;
  table.deviation = 0.02;
  table.weight_decay = true;
  table.counts_in_norm = !replica;
  return parameters.add(table);
}

Embedding::Embedding(const RankSizes& sizes, Parameters& parameters, Communicator& group, Device& device)
    : sizes_(sizes), parameters_(parameters), group_(group), device_(device) {
  table_ = add_token_table(sizes, parameters, false);
  if (sizes.model.position != PositionKind::learned) return;
  Parameter positions;
  positions.name = "positions.weight";
  positions.global_rows = sizes.model.max_positions;
  positions.global_columns = sizes.hidden;
  positions.blocks = {{0, sizes.model.max_positions, 0, sizes.hidden}};
  positions.deviation = 0.01;
  positions.weight_decay = true;
  positions.counts_in_norm = sizes.tensor_rank == 0;
  positions_ = parameters.add(positions);
}

Buffer Embedding::forward(const int32_t* tokens, Buffer& saved_tokens) {
  const DataType type = sizes_.type;
  saved_tokens = Buffer(device_, sizes_.tokens * int64_t(sizeof(int32_t)));
  device_.copy(saved_tokens.data(), tokens, saved_tokens.bytes());
  Buffer y(device_, sizes_.token_bytes(sizes_.hidden));
  device_.embedding_forward(type, sizes_.tokens, sizes_.hidden, sizes_.vocab_first, sizes_.vocab_used, tokens,
                            parameters_.value(table_), y.data());
  group_.all_reduce(y.data(), sizes_.tokens * sizes_.hidden, type, ReduceOperation::sum);
  if (positions_ >= 0) {
    device_.position_forward(type, sizes_.tokens, sizes_.sequence, sizes_.hidden,
                             parameters_.value(positions_), y.data());
  }
  return y;
}

void Embedding::backward_weight(const Buffer& saved_tokens, const void* dy) {
  const DataType type = sizes_.type;
  device_.embedding_backward(type, sizes_.tokens, sizes_.hidden, sizes_.vocab_first, sizes_.vocab_used,
                             static_cast<const int32_t*>(saved_tokens.data()), dy,
                             parameters_.gradient(table_));
  if (positions_ >= 0) {
    device_.position_backward(type, sizes_.tokens, sizes_.sequence, sizes_.hidden, dy,
                              parameters_.gradient(positions_));
  }
}

}  // namespace mpt::runtime
