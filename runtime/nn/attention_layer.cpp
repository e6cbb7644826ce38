// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/attention_layer.h"

namespace mpt::runtime {
namespace {

// Columns of the gate on the core's output, per rank.
int64_t gate_columns(const RankSizes& s) {
  const OutputGate gate = s.kind.attention->output_gate;
  return gate == OutputGate::none ? 0 : gate == OutputGate::per_head ? s.heads : s.attention().outputs();
}

LinearOptions qkv_options(const std::string& name, const RankSizes& s) {
  const int64_t keys = s.kv_heads * s.head_dim, values = s.kv_heads * s.attention().values();
  return columns_options(name + ".qkv", s.kind.attention->qkv_bias,
                         {s.heads * s.head_dim, keys, values, gate_columns(s)}, s.hidden, s);
}

const void* data_if(bool wanted, const Buffer& buffer) { return wanted ? buffer.data() : nullptr; }

}  // namespace

AttentionLayer::AttentionLayer(const std::string& name, const PartContext& context)
    : Part(context),
      core_(context),
      output_(rows_options(name + ".output", sizes_.kind.attention->output_bias, sizes_.attention().outputs(),
                           sizes_),
              context) {
  const RankSizes& s = sizes_;
  const Attention& a = *s.kind.attention;
  const auto up = [&](const char* part, int64_t columns, int64_t inner) {
    return columns_options(name + part, false, {columns}, inner, s);
  };
  const auto down = [&](const char* part, int64_t columns) {
    return whole_options(name + part, a.qkv_bias, columns, s.hidden, s.fp8);
  };
  if (!a.latent) {
    qkv_.emplace(qkv_options(name, s), context);
    if (a.query_key_norm != QueryKeyNorm::none) head_norm_.emplace(name, context);
  } else {
    const LatentAttention& l = *a.latent;
    const int64_t queries = s.heads * (l.nope_head_dim + l.rope_head_dim);
    if (l.query_rank > 0) {
      query_down_.emplace(down(".query_down", l.query_rank), context);
      query_norm_.emplace(name + ".query_latent_norm", context, l.query_rank);
      query_up_.emplace(up(".query_up", queries, l.query_rank), context);
    } else {
      query_.emplace(up(".query", queries, s.hidden), context);
    }
    key_value_down_.emplace(down(".key_value_down", l.key_value_rank + l.rope_head_dim), context);
    key_value_norm_.emplace(name + ".key_value_norm", context, l.key_value_rank);
    const int64_t expanded = s.heads * (l.nope_head_dim + l.value_head_dim);
    key_value_up_.emplace(up(".key_value_up", expanded, l.key_value_rank), context);
  }
  if (a.sinks) sinks_ = parameters_.add(split_vector(name + ".sinks", s.heads, 0.0, kDeviation));
}

void AttentionLayer::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (sizes_.fp8) saved.magnitudes = Buffer(device_, RankSizes::kMagnitudeBytes);
  sizes_.kind.attention->latent ? project_latents(x, saved, room) : project(x, saved, room);
  core_.prepare(saved.qkv);
  attend(saved);
  output_.forward(output_input(saved), y, room, {}, of_output(saved));
}

int64_t AttentionLayer::gates() const { return gate_columns(sizes_); }

void AttentionLayer::project(const void* x, Saved& saved, const TokenRoom& room) {
  saved.qkv = tokens_by(sizes_.attention().row());
  gates() > 0 ? project_with_gate(x, saved, room)
              : qkv_->forward(x, saved.qkv.data(), room, {}, of_qkv(saved));
  if (head_norm_) head_norm_->forward(saved.qkv.data(), saved.heads);
  if (!sizes_.frequencies.empty())
    run(Rotate{.shape = sizes_.attention(),
               .rotation = sizes_.rotation(),
               .direction = +1,
               .qkv = saved.qkv.data()});
}

// The gate's columns follow the values.
void AttentionLayer::project_with_gate(const void* x, Saved& saved, const TokenRoom& room) {
  const int64_t row = sizes_.attention().row(), all = row + gates();
  const Buffer both = tokens_by(all);
  qkv_->forward(x, both.data(), room, {}, of_qkv(saved));
  copy_columns(sizes_.tokens, row, both.data(), all, saved.qkv.data(), row);
  saved.gate = tokens_by(gates());
  copy_columns(sizes_.tokens, gates(), beyond(both.data(), row * sizes_.unit()), all, saved.gate.data(),
               gates());
}

void AttentionLayer::project_latents(const void* x, Saved& saved, const TokenRoom& room) {
  const LatentAttention& l = *sizes_.kind.attention->latent;
  const LatentShape shape = sizes_.latent();
  const auto norm = [&](Norm& of, Latent& latent, int64_t width) {
    latent.normed = local_by(width);
    latent.statistics = of.forward(latent.compressed.data(), latent.normed.data());
  };
  const Buffer queries = tokens_by(shape.heads * shape.key_dim());
  if (query_) {
    query_->forward(x, queries.data(), room);
  } else {
    saved.query.compressed = local_by(l.query_rank);
    query_down_->forward(x, saved.query.compressed.data());
    norm(*query_norm_, saved.query, l.query_rank);
    query_up_->forward(saved.query.normed.data(), queries.data(), room);
  }
  const int64_t width = l.key_value_rank + l.rope_head_dim;
  const Buffer down = local_by(width);
  key_value_down_->forward(x, down.data());
  saved.key_value.compressed = local_by(l.key_value_rank);
  copy_columns(sizes_.local_tokens, l.key_value_rank, down.data(), width, saved.key_value.compressed.data(),
               l.key_value_rank);
  norm(*key_value_norm_, saved.key_value, l.key_value_rank);
  const Buffer key = shared_key(down.data());
  const Buffer expanded = tokens_by(shape.heads * (shape.nope + shape.values));
  key_value_up_->forward(saved.key_value.normed.data(), expanded.data(), room);
  saved.qkv = tokens_by(shape.row());
  run(LatentJoin{.shape = shape,
                 .rotation = sizes_.rotation(),
                 .q = queries.data(),
                 .expanded = expanded.data(),
                 .key = key.data(),
                 .qkv = saved.qkv.data()});
}

// The last columns of the key-value product, of all tokens.
Buffer AttentionLayer::shared_key(const void* key_value) {
  const LatentAttention& l = *sizes_.kind.attention->latent;
  const int64_t rope = l.rope_head_dim;
  Buffer own = local_by(rope);
  copy_columns(sizes_.local_tokens, rope, beyond(key_value, l.key_value_rank * sizes_.unit()),
               l.key_value_rank + rope, own.data(), rope);
  return splits_tokens() ? gathered(own.data(), rope) : std::move(own);
}

void AttentionLayer::attend(Saved& saved) {
  saved.core_out = tokens_by(sizes_.attention().outputs());
  saved.log_sum_exp = Buffer(device_, sizes_.state_bytes(sizes_.heads));
  core_.forward(saved.qkv, saved.core_out.data(), saved.log_sum_exp.data(), value_if(sinks_));
  if (gates() == 0) return;
  saved.gated = tokens_by(sizes_.attention().outputs());
  run(GateForward{
      .shape = gate_shape(), .x = saved.core_out.data(), .gate = saved.gate.data(), .y = saved.gated.data()});
}

void AttentionLayer::drop_core(Saved& saved) {
  saved.core_out.reset();
  saved.log_sum_exp.reset();
  saved.gated.reset();
}

Buffer AttentionLayer::backward_input(const void* dy, const void* x, void* dx, Saved& saved,
                                      const TokenRoom& room, bool column_weights) {
  Buffer d_core = tokens_by(sizes_.attention().outputs());
  output_.backward_input_of_rows(dy, saved.d_output_gathered, d_core.data(), {},
                                 column_weights && sizes_.weights_with_inputs ? output_input(saved) : nullptr,
                                 of_output(saved));
  if (gates() > 0) {
    saved.d_gate = tokens_by(gates());
    run(GateBackward{.shape = gate_shape(),
                     .dy = d_core.data(),
                     .x = saved.core_out.data(),
                     .gate = saved.gate.data(),
                     .dx = d_core.data(),
                     .dgate = saved.d_gate.data()});
  }
  saved.d_qkv = tokens_by(sizes_.attention().row());
  Sinks sinks;
  if (sinks_ >= 0) {
    saved.d_sinks = numbers(sizes_.heads);
    sinks = {parameters_.value(sinks_), saved.d_sinks.data()};
  }
  core_.backward(d_core.data(), saved.qkv, saved.core_out.data(), saved.log_sum_exp.data(),
                 saved.d_qkv.data(), sinks);
  if (sizes_.kind.attention->latent)
    backward_latents(x, dx, saved, room, column_weights);
  else
    backward_project(x, dx, saved, room, column_weights);
  return d_core;
}

void AttentionLayer::backward_project(const void* x, void* dx, Saved& saved, const TokenRoom& room,
                                      bool column_weights) {
  if (!sizes_.frequencies.empty())
    run(Rotate{.shape = sizes_.attention(),
               .rotation = sizes_.rotation(),
               .direction = -1,
               .qkv = saved.d_qkv.data()});
  if (head_norm_) head_norm_->backward_input(saved.d_qkv.data(), saved.heads);
  if (gates() > 0) join_gate(saved);
  qkv_->backward_input(saved.d_qkv.data(), dx, room, column_weights ? x : nullptr, of_qkv(saved));
}

void AttentionLayer::join_gate(Saved& saved) {
  const int64_t row = sizes_.attention().row(), all = row + gates();
  Buffer both = tokens_by(all);
  copy_columns(sizes_.tokens, row, saved.d_qkv.data(), row, both.data(), all);
  copy_columns(sizes_.tokens, gates(), saved.d_gate.data(), gates(), beyond(both.data(), row * sizes_.unit()),
               all);
  saved.d_qkv = std::move(both);
  saved.d_gate.reset();
}

void AttentionLayer::backward_latents(const void* x, void* dx, Saved& saved, const TokenRoom& room,
                                      bool column_weights) {
  const LatentAttention& l = *sizes_.kind.attention->latent;
  const LatentShape shape = sizes_.latent();
  Latent &query = saved.query, &key_value = saved.key_value;
  query.d_expanded = tokens_by(shape.heads * shape.key_dim());
  key_value.d_expanded = tokens_by(shape.heads * (shape.nope + shape.values));
  const Buffer d_key = tokens_by(shape.rope);
  run(LatentSplit{.shape = shape,
                  .rotation = sizes_.rotation(),
                  .dqkv = saved.d_qkv.data(),
                  .dq = query.d_expanded.data(),
                  .dexpanded = key_value.d_expanded.data(),
                  .dkey = d_key.data()});
  saved.d_qkv.reset();
  backward_key_value(d_key, dx, saved, room, column_weights);
  const Buffer by_queries = local();
  if (query_) {
    query_->backward_input(query.d_expanded.data(), by_queries.data(), room, column_weights ? x : nullptr);
  } else {
    query.d_normed = local_by(l.query_rank);
    query_up_->backward_input(query.d_expanded.data(), query.d_normed.data(), room,
                              data_if(column_weights, query.normed));
    query.d_down = local_by(l.query_rank);
    query_norm_->backward_input(query.d_normed.data(), query.compressed.data(), query.statistics.data(),
                                query.d_down.data());
    query_down_->backward_input(query.d_down.data(), by_queries.data());
  }
  add(dx, by_queries.data(), dx);
}

// `d_key`: gradient of the shared key, from this rank's heads. dx is written.
void AttentionLayer::backward_key_value(const Buffer& d_key, void* dx, Saved& saved, const TokenRoom& room,
                                        bool column_weights) {
  const LatentAttention& l = *sizes_.kind.attention->latent;
  Latent& latent = saved.key_value;
  const int64_t rope = l.rope_head_dim, rank = l.key_value_rank, local = sizes_.local_tokens;
  latent.d_normed = local_by(rank);
  key_value_up_->backward_input(latent.d_expanded.data(), latent.d_normed.data(), room,
                                data_if(column_weights, latent.normed));
  const Buffer scattered = splits_tokens() ? local_by(rope) : Buffer();
  void* const summed = scattered ? scattered.data() : d_key.data();
  sum_over(group_, d_key.data(), summed, rope);
  latent.d_down = local_by(rank + rope);
  const Buffer d_compressed = local_by(rank);
  key_value_norm_->backward_input(latent.d_normed.data(), latent.compressed.data(), latent.statistics.data(),
                                  d_compressed.data());
  const auto put = [&](const void* from, int64_t columns, int64_t column) {
    copy_columns(local, columns, from, columns, beyond(latent.d_down.data(), column * sizes_.unit()),
                 rank + rope);
  };
  put(d_compressed.data(), rank, 0);
  put(summed, rope, rank);
  key_value_down_->backward_input(latent.d_down.data(), dx);
}

void AttentionLayer::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all,
                                     bool with_columns) {
  if (head_norm_) head_norm_->backward_weight(saved.heads);
  if (sinks_ >= 0) add_gradient(sinks_, sizes_.heads, saved.d_sinks.data());
  const WeightOperands output{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                              output_input(saved), of_output(saved)};
  if (qkv_)
    return output_.backward_weights(output, *qkv_, {saved.d_qkv.data(), x, of_qkv(saved)}, all, with_columns);
  if (with_columns || !sizes_.weights_with_inputs)
    output_.backward_weight(output.dy, output.x, output.magnitudes);
  latent_weights(x, saved, all, with_columns);
}

void AttentionLayer::latent_weights(const void* x, Saved& saved, const Buffer& all, bool with_columns) {
  const auto expand = [&](Linear& up, const Buffer& dy, const void* input) {
    if (with_columns) up.backward_weight(dy.data(), input, all);
  };
  const auto compress = [&](Linear& down, Norm& norm, const Latent& latent) {
    norm.backward_weight(latent.d_normed.data(), latent.compressed.data(), latent.statistics.data());
    down.backward_weight(latent.d_down.data(), x);
  };
  if (query_) {
    expand(*query_, saved.query.d_expanded, x);
  } else {
    expand(*query_up_, saved.query.d_expanded, saved.query.normed.data());
    compress(*query_down_, *query_norm_, saved.query);
  }
  expand(*key_value_up_, saved.key_value.d_expanded, saved.key_value.normed.data());
  compress(*key_value_down_, *key_value_norm_, saved.key_value);
}

}  // namespace mpt::runtime
