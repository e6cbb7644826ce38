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
  saved.norm_out = local();
  saved.norm_statistics =
      norm_.forward(residual, saved.input.data(), saved.input.data(), saved.norm_out.data());
  // The factor on logits is applied to the product's input, and in the backward to its gradient.
  scale(sizes_.model.logit_scale, saved.norm_out.data());
  saved.d_logits = tokens_by(sizes_.vocab_rows);
  const TokenRoom room = make_room(sizes_, device_);
  output_.forward(saved.norm_out.data(), saved.d_logits.data(), room);
  cross_entropy(targets, loss_scale, saved.d_logits.data(), loss);
}

void Head::cross_entropy(const int32_t* targets, double loss_scale, void* logits, double* loss) {
  const RankSizes& s = sizes_;
  const double cap = s.model.logit_cap.value_or(0.0);
  if (cap > 0.0) run(SoftCap{.count = s.tokens * s.vocab_rows, .cap = cap, .x = logits});
  LossShape shape{s.tokens, s.vocab_rows, s.vocab_used};
  if (group_.size() == 1 && cap == 0.0)
    return run(
        LossOfAll{.shape = shape, .targets = targets, .scale = loss_scale, .logits = logits, .loss = loss});
  const DataType wide = state_type_of(s.type);
  Buffer maximum(device_, s.state_bytes(1)), sums(device_, s.state_bytes(2));
  shape.first = s.vocab_first;
  run(LossMaximum{.shape = shape, .logits = logits, .maximum = maximum.data()});
  group_.all_reduce(maximum.data(), s.tokens, wide, ReduceOperation::maximum);
  run(LossExponentials{
      .shape = shape, .targets = targets, .maximum = maximum.data(), .logits = logits, .sums = sums.data()});
  group_.all_reduce(sums.data(), 2 * s.tokens, wide, ReduceOperation::sum);
  run(LossGradient{.shape = shape,
                   .targets = targets,
                   .sums = sums.data(),
                   .scale = loss_scale,
                   .logits = logits,
                   .loss = loss,
                   .cap = cap,
                   .maximum = maximum.data()});
}

Buffer Head::backward_input(Saved& saved, bool weights, const void* beside) {
  const TokenRoom room = make_room(sizes_, device_);
  saved.has_weights = weights;
  saved.d_norm_out = local();
  output_.backward_input(saved.d_logits.data(), saved.d_norm_out.data(), room,
                         weights ? saved.norm_out.data() : nullptr);
  // The first next-token module reads the scaled input, too, so its gradient is added before scaling.
  if (beside != nullptr) add(saved.d_norm_out.data(), beside, saved.d_norm_out.data());
  scale(sizes_.model.logit_scale, saved.d_norm_out.data());
  Buffer d_input = local();
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
