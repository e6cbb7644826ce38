// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/decoder_layer.h"

namespace mpt::runtime {
namespace {

std::string prefix(int64_t index) { return "layers." + std::to_string(index); }

// Queries, keys and values of this rank's heads out of the whole [(heads + 2 kv_heads) * head_dim, hidden].
LinearOptions qkv_options(int64_t index, const RankSizes& s) {
  const int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  const int64_t all_queries = queries * s.tensor, all_keys = keys * s.tensor;
  return {prefix(index) + ".attention.qkv",
          Split::columns,
          s.model.attention().qkv_bias,
          all_queries + 2 * all_keys,
          s.hidden,
          {{queries * s.tensor_rank, queries, 0, s.hidden},
           {all_queries + keys * s.tensor_rank, keys, 0, s.hidden},
           {all_queries + all_keys + keys * s.tensor_rank, keys, 0, s.hidden}},
          kDeviation,
          s.fp8};
}

LinearOptions attention_output_options(int64_t index, const RankSizes& s) {
  const int64_t inner = s.heads * s.head_dim;
  return {prefix(index) + ".attention.output",
          Split::rows,
          s.model.attention().output_bias,
          s.hidden,
          inner * s.tensor,
          {{0, s.hidden, inner * s.tensor_rank, inner}},
          residual_deviation(s.model.layers.count()),
          s.fp8};
}

LinearOptions up_options(int64_t index, const RankSizes& s) {
  LinearOptions options{prefix(index) + ".mlp.up",
                        Split::columns,
                        s.model.mlp().bias,
                        s.up_columns() * s.tensor,
                        s.hidden,
                        {{s.ffn * s.tensor_rank, s.ffn, 0, s.hidden}},
                        kDeviation,
                        s.fp8};
  if (s.model.mlp().gated) options.blocks.push_back({s.ffn * (s.tensor + s.tensor_rank), s.ffn, 0, s.hidden});
  return options;
}

LinearOptions down_options(int64_t index, const RankSizes& s) {
  return {prefix(index) + ".mlp.down",
          Split::rows,
          s.model.mlp().bias,
          s.hidden,
          s.ffn * s.tensor,
          {{0, s.hidden, s.ffn * s.tensor_rank, s.ffn}},
          residual_deviation(s.model.layers.count()),
          s.fp8};
}

}  // namespace

DecoderLayer::DecoderLayer(int64_t index, Recompute recompute, const RankSizes& sizes, Parameters& parameters,
                           const LayerGroups& groups, Device& device)
    : piece_(parameters.begin_piece()),
      recompute_(recompute),
      sizes_(sizes),
      device_(device),
      norm1_(prefix(index) + ".attention.norm", sizes, parameters, device),
      qkv_(qkv_options(index, sizes), sizes, parameters, groups, device),
      attention_output_(attention_output_options(index, sizes), sizes, parameters, groups, device),
      core_(sizes, groups, device),
      norm2_(prefix(index) + ".mlp.norm", sizes, parameters, device) {
  if (sizes.model.attention().query_key_norm != QueryKeyNorm::none)
    head_norm_.emplace(prefix(index) + ".attention", sizes, parameters, device);
  if (layer_has_experts(sizes.model, index)) {
    experts_.emplace(prefix(index) + ".mlp", sizes, parameters, groups, device);
  } else {
    up_.emplace(up_options(index, sizes), sizes, parameters, groups, device);
    down_.emplace(down_options(index, sizes), sizes, parameters, groups, device);
  }
}

Buffer DecoderLayer::forward(Buffer input, Saved& saved, const Residual& residual) {
  const TokenRoom room = make_room(sizes_, device_);
  saved.input = std::move(input);
  Buffer output = local_by(sizes_.hidden);
  {
    const Buffer projected = local_by(sizes_.hidden);
    forward_to_middle(saved, residual.lacking, projected.data(), room);
    forward_mlp(saved, projected.data(), output.data(), room);
  }
  if (!residual.left)
    device_.residual_add(sizes_.type, local_count(), saved.middle.data(), output.data(), output.data());
  keep_only_what_is_asked(saved);
  return output;
}

void DecoderLayer::forward_to_middle(Saved& saved, const void* lacking, void* projected,
                                     const TokenRoom& room) {
  saved.norm1_statistics = Buffer(device_, norm1_.statistics_bytes());
  saved.norm1_out = local_by(sizes_.hidden);
  norm1_.forward(lacking, saved.input.data(), saved.input.data(), saved.norm1_out.data(),
                 saved.norm1_statistics.data());
  saved.qkv = tokens_by(sizes_.attention().row());
  qkv_.forward(saved.norm1_out.data(), saved.qkv.data(), room);
  if (head_norm_) head_norm_->forward(saved.qkv.data(), saved.unnormed_heads);
  if (sizes_.model.position == PositionKind::rotary)
    device_.rotary(sizes_.type, sizes_.attention(), sizes_.rotation(), +1, saved.qkv.data());
  core_.prepare(saved.qkv);
  attend(saved);
  attention_output_.forward(saved.core_out.data(), projected, room);
}

void DecoderLayer::attend(Saved& saved) {
  saved.core_out = tokens_by(sizes_.heads * sizes_.head_dim);
  saved.log_sum_exp = Buffer(device_, sizes_.state_bytes(sizes_.heads));
  core_.forward(saved.qkv, saved.core_out.data(), saved.log_sum_exp.data());
}

void DecoderLayer::forward_mlp(Saved& saved, const void* projected, void* output, const TokenRoom& room) {
  saved.middle = local_by(sizes_.hidden);
  saved.norm2_statistics = Buffer(device_, norm2_.statistics_bytes());
  saved.norm2_out = local_by(sizes_.hidden);
  norm2_.forward(saved.input.data(), projected, saved.middle.data(), saved.norm2_out.data(),
                 saved.norm2_statistics.data());
  if (experts_) return experts_->forward(saved.norm2_out.data(), output, saved.experts);
  saved.up = tokens_by(sizes_.up_columns());
  up_->forward(saved.norm2_out.data(), saved.up.data(), room);
  saved.activated = tokens_by(sizes_.ffn);
  device_.activation_forward(sizes_.type, sizes_.activation(), saved.up.data(), saved.activated.data());
  if (output != nullptr) down_->forward(saved.activated.data(), output, room);
}

void DecoderLayer::keep_only_what_is_asked(Saved& saved) {
  if (recompute_ == Recompute::full) {
    Saved kept;
    kept.input = std::move(saved.input);
    saved = std::move(kept);
  } else if (recompute_ == Recompute::selective) {
    saved.core_out.reset();
    saved.log_sum_exp.reset();
  }
}

// Brings back what forward dropped; the last projection and residual are not needed.
void DecoderLayer::recompute(Saved& saved, const TokenRoom& room) {
  if (recompute_ == Recompute::selective) return attend(saved);
  if (recompute_ == Recompute::none) return;
  const Buffer projected = local_by(sizes_.hidden);
  forward_to_middle(saved, nullptr, projected.data(), room);
  forward_mlp(saved, projected.data(), nullptr, room);
}

// From the gradient of the output to that of the norm's output.
Buffer DecoderLayer::backward_mlp(Saved& saved, const void* d_output, const TokenRoom& room) {
  saved.d_norm2_out = local_by(sizes_.hidden);
  if (experts_) {
    experts_->backward_input(d_output, saved.d_norm2_out.data(), loss_scale_, saved.experts);
    return {};
  }
  Buffer d_activated = tokens_by(sizes_.ffn);
  down_->backward_input_of_rows(d_output, saved.d_output_gathered, d_activated.data());
  saved.d_up = tokens_by(sizes_.up_columns());
  device_.activation_backward(sizes_.type, sizes_.activation(), d_activated.data(), saved.up.data(),
                              saved.d_up.data());
  up_->backward_input(saved.d_up.data(), saved.d_norm2_out.data(), room,
                      saved.has_column_weights ? saved.norm2_out.data() : nullptr);
  return d_activated;
}

Buffer DecoderLayer::backward_attention(Saved& saved, const TokenRoom& room) {
  const DataType type = sizes_.type;
  Buffer d_core = tokens_by(sizes_.heads * sizes_.head_dim);
  attention_output_.backward_input_of_rows(saved.d_middle.data(), saved.d_middle_gathered, d_core.data());
  saved.d_qkv = tokens_by(sizes_.attention().row());
  core_.backward(d_core.data(), saved.qkv, saved.core_out.data(), saved.log_sum_exp.data(),
                 saved.d_qkv.data());
  if (sizes_.model.position == PositionKind::rotary)
    device_.rotary(type, sizes_.attention(), sizes_.rotation(), -1, saved.d_qkv.data());
  if (head_norm_) head_norm_->backward_input(saved.unnormed_heads, saved.d_qkv.data(), saved.d_head_scales);
  saved.d_norm1_out = local_by(sizes_.hidden);
  qkv_.backward_input(saved.d_qkv.data(), saved.d_norm1_out.data(), room,
                      saved.has_column_weights ? saved.norm1_out.data() : nullptr);
  return d_core;
}

Buffer DecoderLayer::backward_input(Saved& saved, Buffer d_output, const void* d_output_data,
                                    bool column_weights) {
  const TokenRoom room = make_room(sizes_, device_);
  recompute(saved, room);
  saved.has_column_weights = column_weights;
  saved.d_output = std::move(d_output);
  const Buffer d_activated = backward_mlp(saved, d_output_data, room);
  saved.d_middle = local_by(sizes_.hidden);
  norm2_.backward_input(saved.d_norm2_out.data(), saved.middle.data(), saved.norm2_statistics.data(),
                        d_output_data, saved.d_middle.data());
  const Buffer d_core = backward_attention(saved, room);
  Buffer d_input = local_by(sizes_.hidden);
  norm1_.backward_input(saved.d_norm1_out.data(), saved.input.data(), saved.norm1_statistics.data(),
                        saved.d_middle.data(), d_input.data());
  return d_input;
}

void DecoderLayer::backward_weight(Saved& saved, const void* d_output_data) {
  const auto whole = [](const Buffer& gathered, const void* otherwise) {
    return gathered ? gathered.data() : otherwise;
  };
  // A column-parallel product's input is gathered while the row-parallel one before it is at work.
  const Buffer all =
      sizes_.sequence_parallel && !saved.has_column_weights ? tokens_by(sizes_.hidden) : Buffer();
  const auto both = [&](Linear& rows, const void* dy, const void* x, Linear& columns, const Buffer& d_columns,
                        const Buffer& input) {
    if (saved.has_column_weights) return rows.backward_weight(dy, x);
    Posted gathered;
    const void* const whole_input = columns.gather_input(input.data(), all, gathered);
    rows.backward_weight(dy, x);
    gathered.wait();
    columns.backward_weight(d_columns.data(), whole_input);
  };
  if (experts_) {
    experts_->backward_weight(saved.norm2_out.data(), saved.experts);
  } else {
    both(*down_, whole(saved.d_output_gathered, d_output_data), saved.activated.data(), *up_, saved.d_up,
         saved.norm2_out);
  }
  norm2_.backward_weight(saved.d_norm2_out.data(), saved.middle.data(), saved.norm2_statistics.data());
  if (head_norm_) head_norm_->backward_weight(saved.d_head_scales);
  both(attention_output_, whole(saved.d_middle_gathered, saved.d_middle.data()), saved.core_out.data(), qkv_,
       saved.d_qkv, saved.norm1_out);
  norm1_.backward_weight(saved.d_norm1_out.data(), saved.input.data(), saved.norm1_statistics.data());
}

}  // namespace mpt::runtime
