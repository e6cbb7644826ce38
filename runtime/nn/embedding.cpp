// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/embedding.h"

namespace mpt::runtime {

int add_vocabulary_table(const char* name, const RankSizes& sizes, Parameters& parameters, bool replica) {
  return parameters.add({.name = name,
                         .global_rows = sizes.model.vocab,
                         .global_columns = sizes.hidden,
                         .blocks = {{sizes.vocab_first, sizes.vocab_used, 0, sizes.hidden}},
                         .padding_rows = sizes.vocab_rows - sizes.vocab_used,
                         .deviation = kDeviation,
                         .weight_decay = true,
                         .is_first_copy = !replica});
}

Embedding::Embedding(const PartContext& context) : Part(context), piece_(parameters_.begin_piece()) {
  table_ = add_vocabulary_table("embedding.weight", sizes_, parameters_, false);
  if (sizes_.model.position != PositionKind::learned) return;
  // A separate group: so a tied table is shared out in the same way on the first and on the last stage.
  parameters_.begin_piece(false);
  positions_ = parameters_.add({.name = "positions.weight",
                                .global_rows = sizes_.model.max_positions,
                                .global_columns = sizes_.hidden,
                                .blocks = {{0, sizes_.model.max_positions, 0, sizes_.hidden}},
                                .deviation = 0.01,
                                .weight_decay = true,
                                .is_first_copy = sizes_.tensor_rank == 0,
                                .partial = sizes_.sequence_parallel});
  parameters_.use_in(piece_, positions_);
}

Embedding::Embedding(size_t user, int table, const PartContext& context)
    : Part(context), piece_(user), table_(table) {
  parameters_.use_in(user, table);
}

Buffer Embedding::forward(const int32_t* tokens, Saved& saved) {
  saved.ids.assign(tokens, tokens + sizes_.tokens);
  saved.on_device = Buffer(device_, sizes_.tokens * int64_t(sizeof(int32_t)));
  device_.copy(saved.on_device.data(), tokens, saved.on_device.bytes());
  Buffer y = tokens_by(sizes_.hidden);
  run(EmbeddingForward{.shape = table_shape(),
                       .ids = static_cast<const int32_t*>(saved.on_device.data()),
                       .table = parameters_.value(table_),
                       .y = y.data()});
  Buffer own = splits_tokens() ? local() : Buffer();
  sum_over(group_, y.data(), own ? own.data() : y.data(), sizes_.hidden);
  if (own) y = std::move(own);
  scale(sizes_.model.embedding_scale, y.data());
  if (positions_ >= 0)
    run(PositionForward{.tokens = sizes_.local_tokens,
                        .hidden = sizes_.hidden,
                        .positions = sizes_.local_positions.data(),
                        .table = parameters_.value(positions_),
                        .y = y.data()});
  return y;
}

void Embedding::backward_weight(const Saved& saved, const void* dy) {
  if (positions_ >= 0)
    run(PositionBackward{.tokens = sizes_.local_tokens,
                         .hidden = sizes_.hidden,
                         .positions = sizes_.local_positions.data(),
                         .dy = dy,
                         .dtable = parameters_.gradient(positions_)});
  const Buffer all = splits_tokens() ? gathered(dy, sizes_.hidden) : Buffer();
  if (all) dy = all.data();
  Buffer scaled;
  if (sizes_.model.embedding_scale) {
    if (!all) scaled = tokens_by(sizes_.hidden);
    void* const to = all ? all.data() : scaled.data();
    run(Scale{
        .count = sizes_.tokens * sizes_.hidden, .factor = *sizes_.model.embedding_scale, .x = dy, .y = to});
    dy = to;
  }
  run(EmbeddingBackward{
      .shape = table_shape(), .ids = saved.ids.data(), .dy = dy, .dtable = parameters_.gradient(table_)});
}

}  // namespace mpt::runtime
