// SPDX-License-Identifier: Apache-2.0

// Elements of a stage's flat buffers, in the arrangement of the runtime's Parameters.

#include "models/footprint.h"

namespace mpt::models {
namespace {

// Adds the copies and gradients that wait for the end of a pass, where pieces are not freed. Autocast's
// copies of weights end with a forward that is run again. The head's gradient of a shared table waits for
// that of the embedding, and their sum is a third. `table`: number of weights of the table for the head, the
// same number with a minus for the embedding, 0 for other pieces.
template <class Held>
void add_waiting(const Layout& layout, int64_t table, Held& h) {
  const int64_t unit = element_bytes(layout.precision);
  if (h.recompute == Recompute::full && layout.execution->kept.narrows_each_input && unit < 4)
    h.at_work.waits = h.piece->parameters.dense * unit;
  h.at_work.stays = table * gradient_sum_bytes(layout);
  h.gradient_in += std::max<int64_t>(0, -2 * h.at_work.stays);
}

}  // namespace

// Parameters that belong to another piece: a piece works with them, but has no state for them.
int64_t StagePieces::borrowed_parameters(const Held& h, const StageContent& content) const {
  if (h.piece == &head_) return content.has_embedding ? tied_parameters_ : 0;
  // Each module is an input, a layer and a head.
  if (!is_next_token(h)) return 0;
  const auto place = size_t(h.piece - next_token_.data());
  if (place % 3 == 1) return 0;
  if (place % 3 == 2) return model_.tied_embeddings ? table_parameters_ : head_.parameters.dense;
  return place == 0 ? table_parameters_ - copied_table_ : table_parameters_;
}

// Optimizers that work on a rank's rows of each weight narrow only whole blocks of at least 4,096 weights
// (torchao 0.18.0, optim/adam.py, _new_buffer). The first ranks have the most rows. The Trainer leaves tables
// to 32 bits where bitsandbytes has the moments (transformers 5.24.0, trainer.py, register_module_override).
int64_t StagePieces::wide_share(const Layout& layout, const Piece& piece, bool without_table) const {
  const int64_t block = layout.execution->states.narrow_moment_block;
  const bool table = &piece == &embedding_ && layout.execution->states.wide_table_moments;
  if ((block == 1 && !table) || layout.training->optimizer != OptimizerKind::adamw8) return 0;
  int64_t wide = 0;
  for (const Weight& w : piece.weights) {
    if (without_table && w.rows * w.columns == tied_parameters_) continue;
    const int64_t shard = w.expert ? expert_shard(layout) : dense_shard(layout);
    const int64_t share = (w.rows + shard - 1) / shard * w.columns;
    if (table || share < 4096 || share % block != 0) wide += share;
  }
  return wide;
}

// Of dense weights, or of routed experts, each of which is a row.
int64_t StagePieces::padding(const Layout& layout, const Piece& piece, bool without_table,
                             bool of_experts) const {
  const StateBytes& states = layout.execution->states;
  const int64_t shard = of_experts ? expert_shard(layout) : dense_shard(layout);
  if (shard == 1 || !(of_experts || states.shards_whole_rows)) return 0;
  int64_t padding = 0;
  for (const Weight& w : piece.weights) {
    const bool divides = model_.hidden % shard == 0 || w.columns / model_.hidden % shard == 0;
    const bool dealt = !of_experts || states.shards_whole_experts ||
                       (states.deals_uneven_experts && !divides) ||
                       (states.deals_enough_experts && w.rows >= shard);
    if (dealt && w.expert == of_experts && !(without_table && w.rows * w.columns == tied_parameters_))
      padding += ((w.rows + shard - 1) / shard * shard - w.rows) * w.columns;
  }
  return padding;
}

ParameterShare StagePieces::padded(ParameterShare share, const Layout& layout, const KindCounts& layers,
                                   bool embedding, bool head) const {
  for (size_t kind = 0; kind < layers.size(); ++kind) {
    const Piece& layer = layers_[layer_of_kind_[kind]];
    share.dense += layers[kind] * padding(layout, layer, false, false);
    share.expert += layers[kind] * padding(layout, layer, false, true);
  }
  if (embedding) share.dense += padding(layout, embedding_, false, false);
  if (head) share.dense += padding(layout, head_, embedding, false);
  if (embedding && head && layout.execution->states.gathers_tied_twice) share.dense += tied_parameters_;
  return share;
}

ParameterShare StagePieces::gathered_with_head(const Layout& layout, bool embedding) const {
  const bool shares = embedding && model_.tied_embeddings;
  const int64_t copies = layout.execution->states.gathers_tied_twice ? 2 : 1;
  ParameterShare head = head_.parameters;
  head.dense = (head.dense + padding(layout, head_, false, false)) * (shares ? copies : 1);
  return head;
}

int64_t StagePieces::other_tables(const Layout& layout, const Piece& piece) const {
  if (&piece != &embedding_ || layout.zero < 2 || !layout.execution->states.whole_table_gradients) return 0;
  return (layout.tensor - 1) * (piece.parameters.dense - position_parameters_);
}

// FSDP2 keeps the buffer of a gather with the weights until the next piece's forward, and gathers
// the next piece during a backward. A reduced copy lives to the next reduction (torch 2.15.0,
// _fsdp_param_group.py: wait_for_unshard, post_backward). Run: benchmarks/verified.py.
//
// A table that the head shares is in one group with the embedding. It is gathered from the first use to the
// last, and its gradients wait for each other, unless a loss by chunks has reduced the head's. The head's is
// a view, so their sum is a third (findings/tied_gradients_take_three_tables.sh). Some frameworks have two
// weights of one table, with two gradients that are reduced at once.
void StagePieces::set_at_work(const Layout& layout, Held& h, int64_t parameters, int64_t whole, int64_t share,
                              int64_t frozen_bytes, bool ties) const {
  const StateBytes& states = layout.execution->states;
  const int64_t unit = element_bytes(layout.precision),
                weights = enlarged(parameters * unit + frozen_bytes, MemoryUse::gathered, enlarged_);
  const int64_t tables = other_tables(layout, *h.piece);
  const auto late = (layout.zero_of_gradients() >= 2 ? share : whole + tables) * gradient_sum_bytes(layout);
  // Without the padding of what is gathered and reduced.
  const int64_t gradients = (h.piece->parameters.dense + h.piece->parameters.expert + tables) * unit;
  // A loss by chunks sums the head's gradient in the type in which it is reduced. The sum is there together
  // with a chunk's logits, then with the chunk's gradient and a cast of it (torch 2.15.0,
  // _fsdp_param_group.py, _set_unsharded_grad_dtypes).
  const bool chunks = sums_head_by_chunks(layout), sums = chunks && h.piece == &head_;
  const int64_t reduced = std::max<int64_t>(states.reduced_bytes, unit),
                sum = enlarged(parameters * reduced, MemoryUse::reduced, enlarged_);
  const int64_t later = gradients + sum + h.piece->backward_workspace - h.piece->forward_workspace,
                summed = sums ? sum + std::max<int64_t>(0, later) : 0;
  // In a pipeline all weights are gathered, and whole gradients are added to whole sums. A gradient that a
  // loss by chunks reduced stays until the next loss reduces.
  if (!frees_pieces(layout)) {
    h.at_work = {.forward = summed,
                 .gradients = states.late_gradients || sums ? 0 : gradients,
                 .late = sums ? 0 : late};
    const int64_t tied = ties && states.late_gradients ? tied_parameters_ : 0;
    add_waiting(layout, h.piece == &head_ ? tied : h.piece == &embedding_ ? -tied : 0, h);
    return;
  }
  const bool again = layout.zero >= 3, reduces = layout.zero_of_gradients() >= 2;
  // The head's backward begins with the loss, which needs no weights.
  const bool stays = h.piece != &head_ || states.keeps_head;
  AtWork& own = h.at_work;
  own = {weights * (again && stays ? 2 : 1),
         again && stays ? weights : 0,
         reduces ? gradients : 0,
         reduces ? sum : 0,
         late,
         (layout.shard < layout.replicas() && reduces ? share * reduced : 0) - (again ? 0 : weights)};
  // A frozen table has no gradients.
  const int64_t copies = ties && states.gathers_tied_twice ? 2 : 1,
                trained = ties ? tied_parameters_ * unit : 0,
                table = trained + (ties ? tied_frozen_bytes_ : 0);
  if (h.piece == &embedding_ && ties) {
    own.backward = 0;
    h.gradient_in += 2 * (2 - copies) * trained;
    own.gradients += chunks ? 0 : (copies - 2) * trained;
    own.reduced *= chunks ? 1 : copies;
    own.stays -= (again ? copies : copies - 1) * table;
  }
  if (h.piece != &head_) return;
  // Where logits leave the head before the loss, its weights are gone when they are in 32 bits. A buffer is
  // not. The embedding had that of a shared table, and a loss by chunks waits for it.
  const bool frees = again && freed_logits_ > 0 && states.frees_head_before_loss;
  const int64_t loss = frees ? head_.computed + head_.forward_workspace - freed_logits_ : 0;
  own.forward = ties || chunks ? std::max<int64_t>(0, (again ? copies : copies - 1) * weights - loss) + summed
                               : own.forward - (stays ? std::min(weights, loss) : 0);
  if (!ties) return;
  own.backward += again ? 0 : (copies - 1) * table;
  own.gradients = own.reduced = 0;
  own.stays += copies * table + (chunks ? 0 : trained);
}

StateCounts StagePieces::state_counts(const Layout& layout, const StageContent& content,
                                      std::vector<Held>& pieces) const {
  const int64_t dense = dense_shard(layout), expert = expert_shard(layout);
  StateCounts counts;
  counts.enlarged = enlarged_;
  int64_t before = 0;
  for (Held& h : pieces) {
    // A tied head on the stage of its embedding has no weight; it works with the embedding's weight.
    const bool shares = h.piece == &head_ && content.has_embedding;
    const int64_t tied = shares ? tied_parameters_ : 0;
    // Learned positions are sharded separately from the token table, and so is a copy of the table.
    const bool copies = h.piece == next_token_.data();
    const int64_t apart = h.piece == &embedding_ ? position_parameters_ : copies ? copied_table_ : 0;
    const int64_t padded = h.piece->parameters.dense + padding(layout, *h.piece, shares, false);
    const int64_t dense_share = (padded - tied - apart + dense - 1) / dense + (apart + dense - 1) / dense;
    const int64_t padded_experts = h.piece->parameters.expert + padding(layout, *h.piece, false, true);
    const int64_t expert_share = (padded_experts + expert - 1) / expert;
    const int64_t whole = dense_share * dense + expert_share * expert;
    const int64_t frozen = h.piece->parameters.frozen_bytes - (shares ? tied_frozen_bytes_ : 0);
    const int64_t frozen_expert = h.piece->parameters.frozen_expert_bytes;
    counts.frozen_bytes += h.times * (frozen + frozen_expert);
    counts.scale_bytes += h.times * h.piece->parameters.scale_bytes;
    counts.frozen_share_bytes +=
        h.times * ((frozen + dense - 1) / dense + (frozen_expert + expert - 1) / expert);
    counts.largest_frozen_bytes = std::max(counts.largest_frozen_bytes, frozen + frozen_expert);
    if (!is_layer(h)) counts.adam_share += dense_share;
    counts.wide_share += h.times * wide_share(layout, *h.piece, shares);
    counts.share += h.times * (dense_share + expert_share);
    counts.whole += h.times * whole;
    const int64_t at_work = whole + (borrowed_parameters(h, content) + dense - 1) / dense * dense;
    counts.largest = std::max(counts.largest, at_work);
    counts.largest_pair =
        std::max({counts.largest_pair, before + at_work, h.times > 1 ? 2 * at_work : at_work});
    before = at_work;
    // The last norm's gradient keeps the sum of the head that was reduced with it: a second one.
    const bool reduces = layout.zero_of_gradients() >= 2;
    const bool twice = shares && reduces && layout.execution->states.gathers_tied_twice;
    const bool chunks = h.piece == &head_ && !reduces && sums_head_by_chunks(layout);
    const int64_t second = twice ? (tied + dense - 1) / dense : chunks ? 2 * dense_share : 0;
    counts.more_sums += second + (reduces ? 0 : other_tables(layout, *h.piece));
    if (makes_gradients_late(layout))
      set_at_work(layout, h, at_work, whole, dense_share + expert_share + second,
                  h.piece->parameters.frozen_bytes + frozen_expert,
                  tied_parameters_ + tied_frozen_bytes_ > 0 && content.has_embedding && content.has_head);
    // While a loss by tiles runs, the last layer's weights are gathered, too. The loss gathers a frozen head
    // by itself, without FSDP2's buffer (trl 1.16.0, trl/trainer/utils.py, full_tensor).
    if (h.piece == &head_ && layout.execution->kernels.loss_tile_words > 0) {
      h.at_work.backward += &h == pieces.data() ? 0 : std::prev(&h)->at_work.backward;
      if (h.piece->parameters.dense == 0) h.at_work.forward = h.at_work.backward;
    }
  }
  return counts;
}

}  // namespace mpt::models
