// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/head.h"

#include "runtime/nn/embedding.h"

namespace mpt::runtime {

Head::Head(const std::string& norm, int table, const PartContext& context)
    : Part(context),
      piece_(parameters_.begin_piece()),
      norm_(norm, context),
      output_(table < 0 ? add_vocabulary_table("head.weight", sizes_, parameters_, false) : table,
              LinearShape{sizes_.tokens, sizes_.vocab_rows, sizes_.hidden}, context) {
  if (table >= 0) parameters_.use_in(piece_, table);
}

void Head::forward(Buffer input, const void* residual, const int32_t* targets, double loss_scale,
                   Saved& saved, double* loss) {
  saved.input = std::move(input);
  saved.norm_statistics = Buffer(device_, norm_.statistics_bytes());
  saved.norm_out = local_by(sizes_.hidden);
  norm_.forward(residual, saved.input.data(), saved.input.data(), saved.norm_out.data(),
                saved.norm_statistics.data());
  scale(saved.norm_out);
  saved.d_logits = tokens_by(sizes_.vocab_rows);
  const TokenRoom room = make_room(sizes_, device_);
  output_.forward(saved.norm_out.data(), saved.d_logits.data(), room);
  cross_entropy(targets, loss_scale, saved.d_logits.data(), loss);
}

// The factor on logits is applied to the product's input, and in the backward to its gradient.
void Head::scale(const Buffer& x) {
  if (sizes_.model.logit_scale) run(Scale{local_count(), *sizes_.model.logit_scale, x.data(), x.data()});
}

void Head::cross_entropy(const int32_t* targets, double loss_scale, void* logits, double* loss) {
  const RankSizes& s = sizes_;
  const double cap = s.model.logit_cap.value_or(0.0);
  if (cap > 0.0) run(SoftCap{s.tokens * s.vocab_rows, cap, logits});
  LossShape shape{s.tokens, s.vocab_rows, s.vocab_used};
  if (group_.size() == 1 && cap == 0.0) return run(LossOfAll{shape, targets, loss_scale, logits, loss});
  const DataType wide = state_type_of(s.type);
  Buffer maximum(device_, s.state_bytes(1)), sums(device_, s.state_bytes(2));
  shape.first = s.vocab_first;
  run(LossMaximum{shape, logits, maximum.data()});
  group_.all_reduce(maximum.data(), s.tokens, wide, ReduceOperation::maximum);
  run(LossExponentials{shape, targets, maximum.data(), logits, sums.data()});
  group_.all_reduce(sums.data(), 2 * s.tokens, wide, ReduceOperation::sum);
  run(LossGradient{shape, targets, sums.data(), loss_scale, logits, loss, cap, maximum.data()});
}

Buffer Head::backward_input(Saved& saved, bool weights, const void* beside) {
  const TokenRoom room = make_room(sizes_, device_);
  saved.has_weights = weights;
  saved.d_norm_out = local_by(sizes_.hidden);
  output_.backward_input(saved.d_logits.data(), saved.d_norm_out.data(), room,
                         weights ? saved.norm_out.data() : nullptr);
  // The first next-token module reads the scaled input, too, so its gradient is added before scaling.
  if (beside != nullptr) {
    run(ResidualAdd{local_count(), saved.d_norm_out.data(), beside, saved.d_norm_out.data()});
  }
  scale(saved.d_norm_out);
  Buffer d_input = local_by(sizes_.hidden);
  norm_.backward_input(saved.d_norm_out.data(), saved.input.data(), saved.norm_statistics.data(),
                       d_input.data());
  return d_input;
}

void Head::backward_weight(Saved& saved) {
  if (!saved.has_weights) {
    const Buffer all = sizes_.sequence_parallel ? tokens_by(sizes_.hidden) : Buffer();
    output_.backward_weight(saved.d_logits.data(), saved.norm_out.data(), all);
  }
  norm_.backward_weight(saved.d_norm_out.data(), saved.input.data(), saved.norm_statistics.data());
}

}  // namespace mpt::runtime
