// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/gated_delta_layer.h"

#include <numeric>

namespace mpt::runtime {
namespace {

// Start values in the middle of Mamba-2's ranges (state-spaces/mamba, modules/mamba2.py): decays exp(2), from
// 1 to 16, and steps softplus(-4.6) = 0.01, from 0.001 to 0.1.
constexpr double kDecay = 2.0, kDecayDeviation = 0.5, kStepBias = -4.6, kStepDeviation = 1.0;

// For `ranks` context ranks, each with a share of the heads.
DeltaShape delta_shape(const RankSizes& s, int64_t ranks) {
  const LinearMixer& l = *s.kind.linear;
  const int64_t heads = l.heads / s.tensor / ranks, key_heads = l.key_heads / s.tensor / ranks;
  DeltaShape shape{s.batch, s.sequence * ranks, heads, key_heads, l.head_dim, l.key_dim, l.chunk};
  shape.row = ranks > 1 ? 2 * shape.heads : shape.columns() + shape.values() + 2 * shape.heads;
  return shape;
}

// Queries, keys, values, the gate on the output, b and a; the first three are channels of the convolution.
std::vector<int64_t> delta_parts(const RankSizes& s, bool channels) {
  const DeltaShape d = delta_shape(s, 1);
  if (channels) return {d.keys(), d.keys(), d.values()};
  return {d.keys(), d.keys(), d.values(), d.values(), d.heads, d.heads};
}

}  // namespace

GatedDeltaLayer::GatedDeltaLayer(const std::string& name, const PartContext& context)
    : Part(context),
      exchange_(context),
      delta_(delta_shape(sizes_, exchange_.ranks())),
      input_(columns_options(name + ".input", false, delta_parts(sizes_, false), sizes_.hidden, sizes_),
             context),
      output_(rows_options(name + ".output", false, delta_shape(sizes_, 1).values(), sizes_), context) {
  if (const int64_t length = mixer().convolution; length > 0)
    convolution_ = parameters_.add({.name = name + ".convolution.weight",
                                    .global_rows = channels() * sizes_.tensor,
                                    .global_columns = length,
                                    .blocks = blocks_of(delta_parts(sizes_, true), length, sizes_),
                                    .deviation = 1.0 / std::sqrt(3.0 * double(length)),
                                    .weight_decay = length > 1});
  decay_ = parameters_.add(split_vector(name + ".decay", heads(), kDecay, kDecayDeviation));
  step_bias_ = parameters_.add(split_vector(name + ".step_bias", heads(), kStepBias, kStepDeviation));
  norm_ = parameters_.add(whole_vector(name + ".norm.scale", delta_.head_dim, sizes_.tensor > 1, 1.0));
}

HeadParts GatedDeltaLayer::channel_parts() const {
  const int64_t unit = std::gcd(delta_.key_dim, delta_.head_dim);
  const int64_t keys = delta_.keys() * exchange_.ranks() / unit;
  return {{keys, keys, values() / unit}, unit};
}

GatedNormShape GatedDeltaLayer::gated_norm(const Saved& saved) const {
  return {sizes_.tokens, heads(), delta_.head_dim, output_gate_of(saved).row, sizes_.model.norm_epsilon};
}

DeltaInputs GatedDeltaLayer::inputs(const Buffer& qkv, const Saved& saved) {
  const int64_t first = exchange_.rank() * delta_.heads * sizes_.unit();
  return {qkv.data(), gates_of(saved).data, beyond(parameters_.value(decay_), first),
          beyond(parameters_.value(step_bias_), first)};
}

Buffer GatedDeltaLayer::dense(const Columns& from, int64_t columns) const {
  Buffer to = tokens_by(columns);
  copy_columns(sizes_.tokens, columns, from.data, from.row, to.data(), columns);
  return to;
}

void GatedDeltaLayer::project(const void* x, Saved& saved, const TokenRoom& room) {
  saved.projected = tokens_by(row());
  input_.forward(x, saved.projected.data(), room, {}, of_input(saved));
  if (!exchanges()) return;
  saved.channels = exchange_.to_heads(dense(part_of(saved.projected, 0), channels()).data(), channel_parts());
  saved.output_gate = dense(part_of(saved.projected, channels()), values());
  saved.gates = exchange_.to_heads(dense(part_of(saved.projected, channels() + values()), 2 * heads()).data(),
                                   gate_parts());
  saved.projected.reset();
}

// Calls `body` for runs of the convolution's channels on this rank, with the first channel among all, the
// first among the rank's own, and the count.
template <class F>
void GatedDeltaLayer::for_each_run(F&& body) const {
  int64_t first = 0, own = 0;
  for (const int64_t count : {delta_.keys(), delta_.keys(), delta_.values()}) {
    body(first + exchange_.rank() * count, own, count);
    first += count * exchange_.ranks();
    own += count;
  }
}

// The convolution's weights, for the channels of this rank.
Buffer GatedDeltaLayer::own_weights() {
  const int64_t of_channel = mixer().convolution * sizes_.unit();
  const void* const all = parameters_.value(convolution_);
  Buffer own(device_, delta_.columns() * of_channel);
  for_each_run([&](int64_t first, int64_t to, int64_t count) {
    device_.copy(beyond(own.data(), to * of_channel), beyond(all, first * of_channel), count * of_channel);
  });
  return own;
}

// Computes queries, keys and values for the rule.
Buffer GatedDeltaLayer::convolve(const Saved& saved) {
  Buffer qkv = all_tokens_by(delta_.columns());
  const Columns from = channels_of(saved);
  if (convolution_ < 0) {
    copy_columns(delta_.tokens(), delta_.columns(), from.data, from.row, qkv.data(), delta_.columns());
    return qkv;
  }
  const Buffer own = exchanges() ? own_weights() : Buffer();
  run(ConvolutionForward{.shape = convolution(from.row),
                         .x = from.data,
                         .w = own ? own.data() : parameters_.value(convolution_),
                         .y = qkv.data()});
  return qkv;
}

void GatedDeltaLayer::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  if (sizes_.fp8) saved.magnitudes = Buffer(device_, RankSizes::kMagnitudeBytes);
  project(x, saved, room);
  saved.core_out = tokens_by(values());
  saved.normed = tokens_by(values());
  const Buffer qkv = convolve(saved), work = numbers(delta_.forward_room());
  const Buffer exchanged = exchanges() ? all_tokens_by(delta_.values()) : Buffer();
  run(DeltaForward{.shape = delta_,
                   .in = inputs(qkv, saved),
                   .out = exchanged ? exchanged.data() : saved.core_out.data(),
                   .room = work.data()});
  if (exchanged) exchange_.to_tokens(exchanged, value_parts(), saved.core_out.data());
  run(GatedNormForward{.shape = gated_norm(saved),
                       .x = saved.core_out.data(),
                       .gate = output_gate_of(saved).data,
                       .scale = parameters_.value(norm_),
                       .y = saved.normed.data()});
  output_.forward(saved.normed.data(), y, room, {}, of_output(saved));
}

// Pointers to the gradients within one block of memory.
GatedDeltaLayer::Weights GatedDeltaLayer::gradients(const Buffer& all) const {
  char* at = static_cast<char*>(all.data());
  const auto take = [&](int64_t count) {
    char* const taken = at;
    at += count * sizes_.state_unit();
    return taken;
  };
  return {take(convolution_weights()), take(heads()), take(heads()), take(delta_.head_dim)};
}

Buffer GatedDeltaLayer::backward_input(const void* dy, const void* x, void* dx, Saved& saved,
                                       const TokenRoom& room, bool column_weights) {
  Buffer d_core = tokens_by(values());
  output_.backward_input_of_rows(dy, saved.d_output_gathered, d_core.data(), {},
                                 column_weights && sizes_.weights_with_inputs ? saved.normed.data() : nullptr,
                                 of_output(saved));
  saved.d_projected = tokens_by(row());
  saved.d_weights = numbers(convolution_weights() + 2 * heads() + delta_.head_dim);
  device_.zero(saved.d_weights.data(), saved.d_weights.bytes());
  const Weights d = gradients(saved.d_weights);
  const Columns d_gate = part_of(saved.d_projected, channels());
  const Buffer apart = exchanges() ? tokens_by(values()) : Buffer();  // rows of the gate, for the norm
  Buffer through_norm = tokens_by(values());
  run(GatedNormBackward{.shape = gated_norm(saved),
                        .dy = d_core.data(),
                        .x = saved.core_out.data(),
                        .gate = output_gate_of(saved).data,
                        .scale = parameters_.value(norm_),
                        .dx = through_norm.data(),
                        .dgate = apart ? apart.data() : d_gate.data,
                        .dscale = d.norm});
  if (apart) {
    copy_columns(sizes_.tokens, values(), apart.data(), values(), d_gate.data, row());
    through_norm = exchange_.to_heads(through_norm.data(), value_parts());
  }
  backward_core(through_norm, d, saved);
  input_.backward_input(saved.d_projected.data(), dx, room, column_weights ? x : nullptr, of_input(saved));
  return d_core;
}

void GatedDeltaLayer::backward_core(const Buffer& through_norm, const Weights& d, Saved& saved) {
  const Buffer qkv = convolve(saved), d_qkv = all_tokens_by(delta_.columns()),
               work = numbers(delta_.backward_room());
  const Buffer d_gates = exchanges() ? all_tokens_by(2 * delta_.heads) : Buffer();
  const int64_t first = exchange_.rank() * delta_.heads * sizes_.state_unit();
  run(DeltaBackward{
      .shape = delta_,
      .in = inputs(qkv, saved),
      .dout = through_norm.data(),
      .d = {d_qkv.data(), d_gates ? d_gates.data() : part_of(saved.d_projected, channels() + values()).data,
            d.decay + first, d.step_bias + first},
      .room = work.data()});
  if (exchanges()) return backward_exchanged(d_qkv, d_gates, d, saved);
  backward_convolution(d_qkv, part_of(saved.d_projected, 0), d.convolution, saved);
}

void GatedDeltaLayer::backward_convolution(const Buffer& d_qkv, const Columns& d_channels, char* d_weights,
                                           Saved& saved) {
  if (convolution_ < 0)
    return copy_columns(delta_.tokens(), delta_.columns(), d_qkv.data(), delta_.columns(), d_channels.data,
                        d_channels.row);
  const Columns from = channels_of(saved);
  const Buffer own = exchanges() ? own_weights() : Buffer();
  run(ConvolutionBackward{.shape = convolution(from.row),
                          .dy = d_qkv.data(),
                          .x = from.data,
                          .w = own ? own.data() : parameters_.value(convolution_),
                          .dx = d_channels.data,
                          .dw = d_weights});
}

// Gradients of channels and gates go back to the tokens' ranks, and gradients of weights to their places.
void GatedDeltaLayer::backward_exchanged(const Buffer& d_qkv, const Buffer& d_gates, const Weights& d,
                                         Saved& saved) {
  const Buffer d_channels = all_tokens_by(delta_.columns());
  const int64_t of_channel = mixer().convolution * sizes_.state_unit();
  const Buffer own(device_, delta_.columns() * of_channel);
  device_.zero(own.data(), own.bytes());
  backward_convolution(d_qkv, {static_cast<char*>(d_channels.data()), delta_.columns()},
                       static_cast<char*>(own.data()), saved);
  for_each_run([&](int64_t first, int64_t from, int64_t count) {
    device_.copy(d.convolution + first * of_channel, beyond(own.data(), from * of_channel),
                 count * of_channel);
  });
  const auto give = [&](const Buffer& exchanged, const HeadParts& parts, int64_t column) {
    const Buffer tokens = tokens_by(parts.row());
    exchange_.to_tokens(exchanged, parts, tokens.data());
    copy_columns(sizes_.tokens, parts.row(), tokens.data(), parts.row(),
                 part_of(saved.d_projected, column).data, row());
  };
  give(d_channels, channel_parts(), 0);
  give(d_gates, gate_parts(), channels() + values());
}

void GatedDeltaLayer::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all,
                                      bool with_columns) {
  const Weights d = gradients(saved.d_weights);
  const auto add = [&](int weight, int64_t count, const void* part) {
    if (weight >= 0) add_gradient(weight, count, part);
  };
  add(convolution_, convolution_weights(), d.convolution);
  add(decay_, heads(), d.decay);
  add(step_bias_, heads(), d.step_bias);
  add(norm_, delta_.head_dim, d.norm);
  const WeightOperands output{saved.d_output_gathered ? saved.d_output_gathered.data() : dy,
                              saved.normed.data(), of_output(saved)};
  output_.backward_weights(output, input_, {saved.d_projected.data(), x, of_input(saved)}, all, with_columns);
}

}  // namespace mpt::runtime
