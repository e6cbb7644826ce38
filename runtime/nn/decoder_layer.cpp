// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/decoder_layer.h"

namespace mpt::runtime {

DecoderLayer::DecoderLayer(int64_t index, Recompute recompute, const PartContext& context)
    : Part(context), piece_(parameters_.begin_piece()), recompute_(recompute) {
  const std::string layer = "layers." + std::to_string(index);
  const NormPlacement place = sizes_.model.norm_placement;
  const bool before = place != NormPlacement::post;
  const bool behind = place == NormPlacement::post || place == NormPlacement::sandwich;
  const auto norm = [&](std::optional<Norm>& to, const char* name) { to.emplace(layer + name, context); };
  if (sizes_.kind.has_mixer()) {
    if (before) norm(norm1_, ".attention.norm");
    if (sizes_.kind.attention)
      attention_.emplace(layer + ".attention", context);
    else
      delta_.emplace(layer + ".mixer", context);
    if (behind) norm(attention_post_, ".attention.post_norm");
  }
  if (!sizes_.kind.has_mlp()) return;
  if (before && place != NormPlacement::shared) norm(norm2_, ".mlp.norm");
  if (sizes_.kind.moe)
    experts_.emplace(layer + ".mlp", context);
  else
    mlp_.emplace(layer + ".mlp", *sizes_.kind.mlp, context);
  if (behind) norm(mlp_post_, ".mlp.post_norm");
}

const void* DecoderLayer::attention_input(const Saved& saved) const {
  return norm1_ ? saved.norm1.out.data() : saved.input.data();
}

const void* DecoderLayer::mlp_input(const Saved& saved) const {
  return norm2_ ? saved.norm2.out.data() : norm1_ ? saved.norm1.out.data() : mlp_base(saved).data();
}

Buffer DecoderLayer::forward(Buffer input, Saved& saved, const Residual& residual) {
  const TokenRoom room = make_room(sizes_, device_);
  saved.input = std::move(input);
  if (!has_mixer() || !has_mlp()) return forward_single(saved, residual.lacking, room);
  Buffer output = local();
  {
    const Buffer attended = local();
    forward_attention(saved, residual.lacking, attended.data(), room);
    scale_part(attended.data());
    forward_mlp(saved, parallel() ? nullptr : attended.data(), output.data(), room);
    scale_part(output.data());
    if (parallel()) add(output.data(), attended.data(), output.data());
  }
  if (!residual.left) add(mlp_base(saved).data(), output.data(), output.data());
  keep_only_what_is_asked(saved);
  return output;
}

Buffer DecoderLayer::forward_single(Saved& saved, const void* lacking, const TokenRoom& room) {
  Buffer output = local();
  if (has_mixer()) {
    forward_attention(saved, lacking, output.data(), room);
  } else {
    if (lacking != nullptr) add(saved.input.data(), lacking, saved.input.data());
    forward_mlp(saved, nullptr, output.data(), room);
  }
  scale_part(output.data());
  add(saved.input.data(), output.data(), output.data());
  keep_only_what_is_asked(saved);
  return output;
}

void DecoderLayer::normalise(Norm& norm, const void* lacking, const Buffer& x, void* sum, SavedNorm& saved) {
  saved.out = local();
  saved.statistics = norm.forward(lacking, x.data(), sum, saved.out.data());
}

template <class Body>
auto DecoderLayer::with_mixer(Saved& saved, Body&& body) {
  return attention_ ? body(*attention_, saved.attention) : body(*delta_, saved.delta);
}

template <class Body>
void DecoderLayer::with_post_norm(std::optional<Norm>& norm, SavedPostNorm& saved, void* output,
                                  Body&& body) {
  if (!norm) return body(output);
  saved.input = local();
  body(saved.input.data());
  const Buffer unused = output == nullptr ? local() : Buffer();
  saved.statistics = norm->forward(saved.input.data(), unused ? unused.data() : output);
}

void DecoderLayer::forward_attention(Saved& saved, const void* lacking, void* output, const TokenRoom& room) {
  if (norm1_)
    normalise(*norm1_, lacking, saved.input, saved.input.data(), saved.norm1);
  else if (lacking != nullptr)
    add(saved.input.data(), lacking, saved.input.data());
  with_post_norm(attention_post_, saved.attention_out, output, [&](void* y) {
    with_mixer(saved, [&](auto& mixer, auto& kept) { mixer.forward(attention_input(saved), y, kept, room); });
  });
}

void DecoderLayer::forward_mlp(Saved& saved, const void* attended, void* output, const TokenRoom& room) {
  if (attended != nullptr) saved.middle = local();
  if (norm2_)
    normalise(*norm2_, attended, saved.input, saved.middle.data(), saved.norm2);
  else if (attended != nullptr)
    add(saved.input.data(), attended, saved.middle.data());
  with_post_norm(mlp_post_, saved.mlp_out, output, [&](void* y) {
    experts_ ? experts_->forward(mlp_input(saved), y, saved.experts, room)
             : mlp_->forward(mlp_input(saved), y, saved.mlp, room);
  });
}

void DecoderLayer::keep_only_what_is_asked(Saved& saved) {
  if (recompute_ == Recompute::full) {
    Saved kept;
    kept.input = std::move(saved.input);
    saved = std::move(kept);
  } else if (recompute_ == Recompute::selective) {
    AttentionLayer::drop_core(saved.attention);
  }
}

// Recomputes the tensors that forward dropped, without the last projection and residual.
void DecoderLayer::recompute(Saved& saved, const TokenRoom& room) {
  if (recompute_ == Recompute::none) return;
  if (recompute_ == Recompute::selective) {
    if (attention_) attention_->attend(saved.attention);
    return;
  }
  const Buffer attended = local();
  if (has_mixer()) forward_attention(saved, nullptr, attended.data(), room);
  if (has_mixer()) scale_part(attended.data());
  if (has_mlp()) forward_mlp(saved, has_mixer() && !parallel() ? attended.data() : nullptr, nullptr, room);
}

// The gradient at the input of the norm that follows a part. Without such a norm: the gradient of the part's
// output, times the residual scale.
const void* DecoderLayer::behind(std::optional<Norm>& norm, SavedPostNorm& saved, const void* d_output) {
  const std::optional<double> factor = sizes_.model.residual_scale;
  if (!norm && !factor) return d_output;
  saved.d_input = local();
  if (!norm) {
    run(Scale{.count = local_count(), .factor = *factor, .x = d_output, .y = saved.d_input.data()});
    return saved.d_input.data();
  }
  norm->backward_input(d_output, saved.input.data(), saved.statistics.data(), saved.d_input.data());
  return saved.d_input.data();
}

// From the gradient of a norm's output to that of its input, plus the gradient of the residual path. Without
// a norm, `d_input` has the former already.
void DecoderLayer::through(std::optional<Norm>& norm, const SavedNorm& saved, const Buffer& x,
                           const void* beside, void* d_input) {
  if (norm)
    norm->backward_input(saved.d_out.data(), x.data(), saved.statistics.data(), beside, d_input);
  else if (beside != nullptr)
    add(d_input, beside, d_input);
}

Buffer DecoderLayer::backward_mlp(Saved& saved, const void* d_output, const void* beside, void* d_input,
                                  const TokenRoom& room) {
  const void* const dy = behind(mlp_post_, saved.mlp_out, d_output);
  if (norm2_) saved.norm2.d_out = local();
  void* const dx = norm2_ ? saved.norm2.d_out.data() : d_input;
  Buffer room_of_mlp;
  if (experts_)
    experts_->backward_input(dy, dx, loss_scale_, saved.experts, room);
  else
    room_of_mlp =
        mlp_->backward_input(dy, dx, saved.mlp, room, saved.has_column_weights ? mlp_input(saved) : nullptr);
  through(norm2_, saved.norm2, mlp_base(saved), beside, d_input);
  return room_of_mlp;
}

Buffer DecoderLayer::backward_attention(Saved& saved, const void* d_output, void* d_input,
                                        const TokenRoom& room) {
  const void* const dy = behind(attention_post_, saved.attention_out, d_output);
  if (norm1_ && !saved.norm1.d_out) saved.norm1.d_out = local();
  void* const dx = norm1_ ? saved.norm1.d_out.data() : d_input;
  return with_mixer(saved, [&](auto& mixer, auto& kept) {
    return mixer.backward_input(dy, attention_input(saved), dx, kept, room, saved.has_column_weights);
  });
}

Buffer DecoderLayer::backward_input(Saved& saved, Buffer d_output, const void* d_output_data,
                                    bool column_weights) {
  const TokenRoom room = make_room(sizes_, device_);
  recompute(saved, room);
  saved.has_column_weights = column_weights;
  saved.d_output = std::move(d_output);
  if (!has_mixer() || !has_mlp()) return backward_single(saved, d_output_data, room);
  Buffer d_input;
  if (parallel()) {
    d_input = local();
    backward_shared(saved, d_output_data, d_input.data(), room);
    return d_input;
  }
  saved.d_middle = local();
  const Buffer of_mlp = backward_mlp(saved, d_output_data, d_output_data, saved.d_middle.data(), room);
  if (!norm1_) d_input = local();
  const Buffer of_attention = backward_attention(saved, saved.d_middle.data(), d_input.data(), room);
  if (norm1_) d_input = local();
  through(norm1_, saved.norm1, saved.input, saved.d_middle.data(), d_input.data());
  return d_input;
}

Buffer DecoderLayer::backward_single(Saved& saved, const void* d_output, const TokenRoom& room) {
  Buffer d_input = local();
  if (!has_mixer()) {
    const Buffer of_mlp = backward_mlp(saved, d_output, d_output, d_input.data(), room);
    return d_input;
  }
  const Buffer of_attention = backward_attention(saved, d_output, d_input.data(), room);
  through(norm1_, saved.norm1, saved.input, d_output, d_input.data());
  return d_input;
}

// Attention and MLP in parallel on the layer's input, with one norm or two.
void DecoderLayer::backward_shared(Saved& saved, const void* d_output, void* d_input, const TokenRoom& room) {
  const Buffer of_mlp = backward_mlp(saved, d_output, nullptr, d_input, room);
  const Buffer of_attention = backward_attention(saved, d_output, nullptr, room);
  void* const d_norm = saved.norm1.d_out.data();
  if (norm2_) {
    const Buffer through_norm = local();
    norm1_->backward_input(d_norm, saved.input.data(), saved.norm1.statistics.data(), through_norm.data());
    add(d_input, through_norm.data(), d_input);
  } else {
    add(d_norm, d_input, d_norm);
    norm1_->backward_input(d_norm, saved.input.data(), saved.norm1.statistics.data(), d_input);
  }
  add(d_input, d_output, d_input);
}

void DecoderLayer::backward_weight(Saved& saved, const void* d_output_data) {
  // A column-parallel product's input is gathered during the preceding row-parallel product.
  const bool with_columns = !saved.has_column_weights;
  const auto all = sizes_.sequence_parallel && with_columns ? tokens_by(sizes_.gathered_columns()) : Buffer();
  const auto weigh = [&](std::optional<Norm>& norm, const void* dy, const Buffer& x,
                         const Buffer& statistics) {
    if (norm) norm->backward_weight(dy, x.data(), statistics.data());
  };
  const auto inner = [](const SavedPostNorm& post, const void* d_output) {
    return post.d_input ? post.d_input.data() : d_output;
  };
  const void* const d_mlp = inner(saved.mlp_out, d_output_data);
  if (experts_)
    experts_->backward_weight(d_mlp, mlp_input(saved), saved.experts, all);
  else if (mlp_)
    mlp_->backward_weight(d_mlp, mlp_input(saved), saved.mlp, all, with_columns);
  const void* const d_attention = saved.d_middle ? saved.d_middle.data() : d_output_data;
  weigh(mlp_post_, d_output_data, saved.mlp_out.input, saved.mlp_out.statistics);
  weigh(norm2_, saved.norm2.d_out.data(), mlp_base(saved), saved.norm2.statistics);
  if (!has_mixer()) return;
  const void* const d_mixer = inner(saved.attention_out, d_attention);
  with_mixer(saved, [&](auto& mixer, auto& kept) {
    mixer.backward_weight(d_mixer, attention_input(saved), kept, all, with_columns);
  });
  weigh(attention_post_, d_attention, saved.attention_out.input, saved.attention_out.statistics);
  weigh(norm1_, saved.norm1.d_out.data(), saved.input, saved.norm1.statistics);
}

}  // namespace mpt::runtime
