// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/embedding.h"

namespace mpt::runtime {

int add_vocabulary_table(const char* name, const RankSizes& sizes, Parameters& parameters, bool replica) {
  Parameter table;
  table.name = name;
  table.global_rows = sizes.model.vocab;
  table.global_columns = sizes.hidden;
  table.blocks = {{sizes.vocab_first, sizes.vocab_used, 0, sizes.hidden}};
  table.padding_rows = sizes.vocab_rows - sizes.vocab_used;
  table.deviation = kDeviation;
  table.weight_decay = true;
  table.is_first_copy = !replica;
  return parameters.add(table);
}

Embedding::Embedding(const PartContext& context) : Part(context), piece_(parameters_.begin_piece()) {
  table_ = add_vocabulary_table("embedding.weight", sizes_, parameters_, false);
  if (sizes_.model.position != PositionKind::learned) return;
  Parameter positions;
  positions.name = "positions.weight";
  positions.global_rows = sizes_.model.max_positions;
  positions.global_columns = sizes_.hidden;
  positions.blocks = {{0, sizes_.model.max_positions, 0, sizes_.hidden}};
  positions.deviation = 0.01;
  positions.weight_decay = true;
  positions.is_first_copy = sizes_.tensor_rank == 0;
  positions.partial = sizes_.sequence_parallel;
  // A separate group: so a tied table is shared out in the same way on the first and on the last stage.
  parameters_.begin_piece(false);
  positions_ = parameters_.add(positions);
  parameters_.use_in(piece_, positions_);
}

Embedding::Embedding(size_t user, int table, const PartContext& context)
    : Part(context), piece_(user), table_(table) {
  parameters_.use_in(user, table);
}

Buffer Embedding::forward(const int32_t* tokens, Saved& saved) {
  const DataType type = sizes_.type;
  const int64_t local = local_count();
  saved.ids.assign(tokens, tokens + sizes_.tokens);
  saved.on_device = Buffer(device_, sizes_.tokens * int64_t(sizeof(int32_t)));
  device_.copy(saved.on_device.data(), tokens, saved.on_device.bytes());
  Buffer y = tokens_by(sizes_.hidden);
  run(EmbeddingForward{table_shape(), static_cast<const int32_t*>(saved.on_device.data()),
                       parameters_.value(table_), y.data()});
  if (scatters()) {
    Buffer own = local_by(sizes_.hidden);
    group_.reduce_scatter(y.data(), own.data(), local, type);
    y = std::move(own);
  } else {
    group_.all_reduce(y.data(), local, type, ReduceOperation::sum);
  }
  if (sizes_.model.embedding_scale) run(Scale{local, *sizes_.model.embedding_scale, y.data(), y.data()});
  if (positions_ >= 0) {
    run(PositionForward{sizes_.local_tokens, sizes_.hidden, sizes_.local_positions.data(),
                        parameters_.value(positions_), y.data()});
  }
  return y;
}

void Embedding::backward_weight(const Saved& saved, const void* dy) {
  const DataType type = sizes_.type;
  if (positions_ >= 0) {
    run(PositionBackward{sizes_.local_tokens, sizes_.hidden, sizes_.local_positions.data(), dy,
                         parameters_.gradient(positions_)});
  }
  Buffer all;
  if (scatters()) {
    all = tokens_by(sizes_.hidden);
    group_.all_gather(dy, all.data(), local_count(), type);
    dy = all.data();
  }
  Buffer scaled;
  if (sizes_.model.embedding_scale) {
    if (!all) scaled = tokens_by(sizes_.hidden);
    void* const to = all ? all.data() : scaled.data();
    run(Scale{sizes_.tokens * sizes_.hidden, *sizes_.model.embedding_scale, dy, to});
    dy = to;
  }
  run(EmbeddingBackward{table_shape(), saved.ids.data(), dy, parameters_.gradient(table_)});
}

}  // namespace mpt::runtime
