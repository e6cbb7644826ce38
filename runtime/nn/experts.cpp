// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/experts.h"

#include <numeric>

namespace mpt::runtime {
namespace {

std::vector<int64_t> in_bytes(std::vector<int64_t> rows, int64_t row_bytes) {
  for (int64_t& count : rows) count *= row_bytes;
  return rows;
}

}  // namespace

Experts::Experts(const std::string& name, const PartContext& context)
    : Part(context),
      expert_group_(*context.groups.expert),
      lists_(context.groups.lists),
      experts_(moe().experts),
      top_(moe().experts_per_token),
      parts_(spreads() ? sizes_.expert_split : 1),
      held_(experts_ * parts_ / expert_group_.size()),
      width_(moe().expert.ffn_hidden / (spreads() ? parts_ : sizes_.tensor)),
      up_width_(width_ * (moe().expert.gated ? 2 : 1)),
      router_(
          whole_options(name + ".router", moe().router_bias && moe().bias_in_logits, experts_, sizes_.hidden),
          context) {
  if (moe().router_bias && !moe().bias_in_logits) add_bias_of_choice(name);
  add_weights(name);
  if (moe().shared_ffn_hidden > 0) shared_.emplace(name, context);
}

void Experts::add_bias_of_choice(const std::string& name) {
  Parameter bias = whole_vector(name + ".router.choice_bias", experts_, sizes_.sequence_parallel);
  bias.fixed_step = moe().bias_rate;
  choice_bias_ = parameters_.add(bias);
}

void Experts::add_weights(const std::string& name) {
  const int64_t first = held_ * (expert_group_.rank() / parts_), hidden = sizes_.hidden;
  const int64_t whole = moe().expert.ffn_hidden, parts = moe().expert.gated ? 2 : 1;
  const int64_t column = width_ * (spreads() ? expert_group_.rank() % parts_ : sizes_.tensor_rank);
  Parameter up;
  up.name = name + ".experts.up.weight";
  up.global_rows = experts_ * parts * whole;
  up.global_columns = hidden;
  Parameter down;
  down.name = name + ".experts.down.weight";
  down.global_rows = experts_ * hidden;
  down.global_columns = whole;
  for (int64_t e = first; e < first + held_; ++e) {
    for (int64_t part = 0; part < parts; ++part)
      up.blocks.push_back({(e * parts + part) * whole + column, width_, 0, hidden});
    down.blocks.push_back({e * hidden, hidden, column, width_});
  }
  up.deviation = kDeviation;
  down.deviation = residual_deviation(sizes_.model.layers.count());
  up.weight_decay = up.expert = down.weight_decay = down.expert = true;
  up_ = parameters_.add(up);
  down_ = parameters_.add(down);
  if (!moe().expert.bias) return;
  const auto bias_of = [&](const Parameter& weight, const char* kind) {
    Parameter bias;
    bias.name = name + ".experts." + kind + ".bias";
    bias.global_rows = weight.global_rows;
    bias.expert = true;
    for (const ShardBlock& block : weight.blocks) bias.blocks.push_back({block.global_row, block.rows, 0, 1});
    return bias;
  };
  up_bias_ = parameters_.add(bias_of(up, "up"));
  Parameter of_down = bias_of(down, "down");
  of_down.is_first_copy = adds_down_bias();
  down_bias_ = parameters_.add(of_down);
}

bool Experts::adds_down_bias() const {
  return (spreads() ? expert_group_.rank() % parts_ : sizes_.tensor_rank) == 0;
}

RouterShape Experts::router_shape() const {
  const MixtureOfExperts& e = moe();
  return {sizes_.local_tokens, e.experts,         e.experts_per_token, e.expert_groups,
          e.groups_per_token,  e.scores,          e.normalized,        e.routed_scale,
          sizes_.sequence,     sizes_.first_local};
}

ActivationShape Experts::activation(int64_t rows) const {
  const Mlp& mlp = moe().expert;
  return {mlp.activation, rows, width_, mlp.gated, mlp.activation_limit.value_or(0.0)};
}

template <class F>
void Experts::for_each_chunk(const Routing& routing, int64_t columns, int64_t inner, F&& body) {
  for (const Chunk& chunk : routing.chunks)
    if (chunk.rows > 0) body(chunk, LinearShape{chunk.rows, columns, inner, sizes_.fp8});
}

// Computes logits, probabilities and choice for the local tokens. If tensor ranks work on all tokens, gathers
// the choice and the weights of all.
void Experts::route(const void* x, Saved& saved, Buffer& weights) {
  const int64_t local = sizes_.local_tokens, unit = sizes_.state_unit();
  const DataType wide = state_type_of(sizes_.type);
  const Buffer logits(device_, width_bytes(local, experts_));
  router_.forward(x, logits.data());
  saved.probabilities = Buffer(device_, local * experts_ * unit);
  saved.routing.chosen.resize(size_t(source_tokens() * top_));
  weights = Buffer(device_, source_tokens() * top_ * unit);
  const int64_t first = gathers() ? sizes_.first_local * top_ : 0;
  int32_t* const chosen = saved.routing.chosen.data();
  char* const own = beyond(weights.data(), first * unit);
  run(RouterForward{.shape = router_shape(),
                    .logits = logits.data(),
                    .probabilities = saved.probabilities.data(),
                    .chosen = chosen + first,
                    .weights = own,
                    .bias = value_if(choice_bias_)});
  if (!gathers()) return;
  group_.all_gather(own, weights.data(), local * top_, wide);
  lists_.tensor->all_gather(chosen + first, chosen, local * top_, DataType::float32);  // 4 bytes as well
}

// Sorts copies by the rank that holds their expert, then by expert, then by token.
void Experts::plan_copies(Routing& routing) {
  routing.copies = int64_t(routing.chosen.size()) * parts_;
  const auto target = [&](int64_t i) {
    const int64_t expert = routing.chosen[size_t(i / parts_)];
    return size_t((expert / held_ * parts_ + i % parts_) * held_ + expert % held_);
  };
  std::vector<int64_t> copies_of(static_cast<size_t>(experts_ * parts_), 0);
  for (int64_t i = 0; i < routing.copies; ++i) ++copies_of[target(i)];
  std::vector<int64_t> next(copies_of.size(), 0);
  std::partial_sum(copies_of.begin(), copies_of.end() - 1, next.begin() + 1);
  routing.source.resize(size_t(routing.copies));
  routing.place.resize(size_t(routing.copies));
  for (int64_t i = 0; i < routing.copies; ++i) {
    const int64_t copy = next[target(i)]++;
    routing.source[size_t(copy)] = int32_t(i / (top_ * parts_));
    routing.place[size_t(i)] = int32_t(copy);
  }
  exchange_counts(routing, copies_of);
}

void Experts::exchange_counts(Routing& routing, const std::vector<int64_t>& copies_of) {
  const auto ranks = size_t(expert_group_.size());
  std::vector<int64_t> arriving(copies_of);  // [ranks, experts held]
  if (spreads()) {
    const std::vector<int64_t> bytes(ranks, held_ * int64_t(sizeof(int64_t)));
    lists_.expert->all_to_all(copies_of.data(), bytes, arriving.data(), bytes);
  }
  routing.sent.assign(ranks, 0);
  routing.received.assign(ranks, 0);
  routing.chunks.clear();
  routing.rows = 0;
  for (size_t rank = 0; rank < ranks; ++rank)
    for (int64_t e = 0; e < held_; ++e) {
      const size_t i = rank * size_t(held_) + size_t(e);
      routing.sent[rank] += copies_of[i];
      routing.received[rank] += arriving[i];
      routing.chunks.push_back({e, routing.rows, arriving[i]});
      routing.rows += arriving[i];
    }
  if (spreads()) loads_.push_back(double(routing.rows) / double(routing.copies));
}

Buffer Experts::to_experts(const Routing& r, const Buffer& copies, int64_t columns, DataType type) {
  const int64_t row = columns * size_of(type);
  Buffer rows(device_, r.rows * row);
  expert_group_.all_to_all(copies.data(), in_bytes(r.sent, row), rows.data(), in_bytes(r.received, row));
  return rows;
}

Buffer Experts::from_experts(const Routing& r, const Buffer& rows, int64_t columns, DataType type) {
  const int64_t row = columns * size_of(type);
  Buffer copies(device_, r.copies * row);
  expert_group_.all_to_all(rows.data(), in_bytes(r.received, row), copies.data(), in_bytes(r.sent, row));
  return copies;
}

// Sends a copy of each token to the rank of each of its experts. `tokens`: the local ones.
Buffer Experts::dispatch(const Routing& routing, const void* tokens) {
  const Buffer all = gathers() ? gathered(tokens, sizes_.hidden) : Buffer();
  Buffer copies(device_, width_bytes(routing.copies, sizes_.hidden));
  run(GatherRows{.count = routing.copies,
                 .columns = sizes_.hidden,
                 .rows = routing.source.data(),
                 .x = all ? all.data() : tokens,
                 .y = copies.data()});
  return spreads() ? to_experts(routing, copies, sizes_.hidden, sizes_.type) : std::move(copies);
}

// Returns the sum of each token's copies to the token's rank; partial sums of tensor ranks are also added.
void Experts::combine(const Routing& routing, const Buffer& rows, void* y) {
  Buffer returned;
  if (spreads()) returned = from_experts(routing, rows, sizes_.hidden, sizes_.type);
  const void* const copies = spreads() ? returned.data() : rows.data();
  const Buffer all = gathers() ? tokens_by(sizes_.hidden) : Buffer();
  run(SumRows{.tokens = source_tokens(),
              .top = top_ * parts_,
              .columns = sizes_.hidden,
              .rows = routing.place.data(),
              .x = copies,
              .y = all ? all.data() : y});
  if (!spreads()) sum_over(group_, all ? all.data() : y, y, sizes_.hidden);
}

// The activations of each copy, times its weight.
Buffer Experts::weighted_rows(const Saved& saved) const {
  Buffer weighted(device_, width_bytes(saved.routing.rows, width_));
  run(ScaleRows{.rows = saved.routing.rows,
                .columns = width_,
                .factors = saved.weights.data(),
                .x = saved.activated.data(),
                .y = weighted.data()});
  return weighted;
}

void Experts::forward(const void* x, void* y, Saved& saved, const TokenRoom& room) {
  forward_routed(x, y, saved);
  if (shared_) shared_->forward(x, y, saved.shared, room);
}

void Experts::forward_routed(const void* x, void* y, Saved& saved) {
  const int64_t hidden = sizes_.hidden;
  Routing& routing = saved.routing;
  Buffer weights;
  route(x, saved, weights);
  plan_copies(routing);
  saved.copies = dispatch(routing, x);
  saved.weights = numbers(routing.copies);
  std::vector<int32_t> by_copy(static_cast<size_t>(routing.copies));
  for (size_t i = 0; i < by_copy.size(); ++i) by_copy[size_t(routing.place[i])] = int32_t(i / size_t(parts_));
  const DataType wide = state_type_of(sizes_.type);
  device_.run(wide, GatherRows{.count = routing.copies,
                               .columns = 1,
                               .rows = by_copy.data(),
                               .x = weights.data(),
                               .y = saved.weights.data()});
  if (spreads()) saved.weights = to_experts(routing, saved.weights, 1, wide);
  saved.up = Buffer(device_, width_bytes(routing.rows, up_width_));
  for_each_chunk(routing, up_width_, hidden, [&](const Chunk& c, const LinearShape& shape) {
    run(LinearForward{.shape = shape,
                      .x = row_at(saved.copies, c.first, hidden),
                      .w = weights_at(up_, c.expert * up_width_ * hidden),
                      .bias = weights_at(up_bias_, c.expert * up_width_),
                      .y = row_at(saved.up, c.first, up_width_)});
  });
  saved.activated = Buffer(device_, width_bytes(routing.rows, width_));
  run(ActivationForward{
      .shape = activation(routing.rows), .x = saved.up.data(), .y = saved.activated.data()});
  if (y == nullptr) return;
  const Buffer weighted = weighted_rows(saved);
  const Buffer out(device_, width_bytes(routing.rows, hidden));
  for_each_chunk(routing, hidden, width_, [&](const Chunk& c, const LinearShape& shape) {
    run(LinearForward{.shape = shape,
                      .x = row_at(weighted, c.first, width_),
                      .w = weights_at(down_, c.expert * hidden * width_),
                      .y = row_at(out, c.first, hidden)});
    if (down_bias_ >= 0 && adds_down_bias())
      run(BiasForward{.rows = c.rows,
                      .columns = hidden,
                      .factors = beyond(saved.weights.data(), c.first * sizes_.state_unit()),
                      .bias = weights_at(down_bias_, c.expert * hidden),
                      .y = row_at(out, c.first, hidden)});
  });
  combine(routing, out, y);
}

// d(coefficient x experts x sum_e f_e P_e) / d probability [sequences, experts]: the same for all tokens of a
// sequence. f_e is the share of the sequence's copies that expert e got. Ranks that hold parts of a sequence
// count together. Empty if the model has no such loss.
Buffer Experts::balance_gradient(const Routing& routing, double scale) const {
  if (moe().balance_loss == 0.0) return {};
  std::vector<double> share(size_t(sizes_.batch * experts_), 0.0);
  const int64_t first = gathers() ? 0 : sizes_.first_local, tokens = source_tokens();
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t sequence = (first + t) / sizes_.sequence;
    for (int64_t j = 0; j < top_; ++j)
      share[size_t(sequence * experts_ + routing.chosen[size_t(t * top_ + j)])] += 1.0;
  }
  const auto add_up = [&](Communicator* group) {
    if (group != nullptr)
      group->all_reduce(share.data(), int64_t(share.size()), DataType::float64, ReduceOperation::sum);
  };
  if (spreads() && sizes_.sequence_parallel) add_up(lists_.tensor);
  add_up(lists_.context);
  const double factor =
      moe().balance_loss * double(experts_) * scale / double(sizes_.sequence * sizes_.context * top_);
  for (double& count : share) count *= factor;
  Buffer gradient = numbers(int64_t(share.size()));
  device_.upload(state_type_of(sizes_.type), share.data(), int64_t(share.size()), gradient.data());
  return gradient;
}

void Experts::backward_input(const void* dy, void* dx, double loss_scale, Saved& saved,
                             const TokenRoom& room) {
  backward_routed(dy, dx, loss_scale, saved);
  if (shared_) shared_->backward_input(dy, dx, saved.shared, room);
}

void Experts::backward_routed(const void* dy, void* dx, double loss_scale, Saved& saved) {
  const int64_t hidden = sizes_.hidden;
  const Routing& routing = saved.routing;
  saved.d_copies_out = dispatch(routing, dy);
  Buffer d_activated(device_, width_bytes(routing.rows, width_));
  for_each_chunk(routing, hidden, width_, [&](const Chunk& c, const LinearShape& shape) {
    run(LinearBackwardInput{.shape = shape,
                            .dy = row_at(saved.d_copies_out, c.first, hidden),
                            .w = weights_at(down_, c.expert * hidden * width_),
                            .dx = row_at(d_activated, c.first, width_)});
  });
  Buffer d_weights = numbers(routing.rows);
  run(RowDots{.rows = routing.rows,
              .columns = width_,
              .a = d_activated.data(),
              .b = saved.activated.data(),
              .dots = d_weights.data()});
  if (down_bias_ >= 0 && adds_down_bias())
    for_each_chunk(routing, hidden, width_, [&](const Chunk& c, const LinearShape&) {
      backward_down_bias(c, saved, nullptr, beyond(d_weights.data(), c.first * sizes_.state_unit()));
    });
  run(ScaleRows{.rows = routing.rows,
                .columns = width_,
                .factors = saved.weights.data(),
                .x = d_activated.data(),
                .y = d_activated.data()});
  saved.d_up = Buffer(device_, width_bytes(routing.rows, up_width_));
  run(ActivationBackward{.shape = activation(routing.rows),
                         .dy = d_activated.data(),
                         .x = saved.up.data(),
                         .dx = saved.d_up.data()});
  d_activated.reset();
  {
    const Buffer d_copies(device_, width_bytes(routing.rows, hidden));
    for_each_chunk(routing, up_width_, hidden, [&](const Chunk& c, const LinearShape& shape) {
      run(LinearBackwardInput{.shape = shape,
                              .dy = row_at(saved.d_up, c.first, up_width_),
                              .w = weights_at(up_, c.expert * up_width_ * hidden),
                              .dx = row_at(d_copies, c.first, hidden)});
    });
    combine(routing, d_copies, dx);
  }
  if (spreads()) d_weights = from_experts(routing, d_weights, 1, state_type_of(sizes_.type));
  route_backward(d_weights, dx, loss_scale, saved);
}

// For a chunk's rows: the gradient of the bias, or that of the weights of its copies; the other is null.
void Experts::backward_down_bias(const Chunk& c, const Saved& saved, void* dbias, void* dfactors) {
  const int64_t hidden = sizes_.hidden;
  run(WeightedBiasBackward{.rows = c.rows,
                           .columns = hidden,
                           .factors = beyond(saved.weights.data(), c.first * sizes_.state_unit()),
                           .bias = weights_at(down_bias_, c.expert * hidden),
                           .dy = row_at(saved.d_copies_out, c.first, hidden),
                           .dbias = dbias,
                           .dfactors = dfactors});
}

// Sorts the gradients of the copies' weights by token, and adds the gradient of the router's input to dx.
void Experts::route_backward(const Buffer& d_weights, void* dx, double loss_scale, Saved& saved) {
  const DataType wide = state_type_of(sizes_.type);
  const int64_t hidden = sizes_.hidden, local = sizes_.local_tokens;
  const Routing& routing = saved.routing;
  const int64_t choices = routing.copies / parts_;
  const Buffer by_token = numbers(choices);
  device_.run(wide, SumRows{.tokens = choices,
                            .top = parts_,
                            .columns = 1,
                            .rows = routing.place.data(),
                            .x = d_weights.data(),
                            .y = by_token.data()});
  if (!spreads()) group_.all_reduce(by_token.data(), choices, wide, ReduceOperation::sum);
  const int64_t first = gathers() ? sizes_.first_local * top_ : 0;
  const Buffer d_balance = balance_gradient(routing, loss_scale);
  saved.d_logits = Buffer(device_, width_bytes(local, experts_));
  run(RouterBackward{.shape = router_shape(),
                     .probabilities = saved.probabilities.data(),
                     .chosen = routing.chosen.data() + first,
                     .dweights = beyond(by_token.data(), first * sizes_.state_unit()),
                     .balance = d_balance.data(),
                     .dlogits = saved.d_logits.data()});
  const Buffer through_router(device_, width_bytes(local, hidden));
  router_.backward_input(saved.d_logits.data(), through_router.data());
  add(dx, through_router.data(), dx);
}

void Experts::backward_weight(const void* dy, const void* x, Saved& saved, const Buffer& all) {
  backward_routed_weight(x, saved);
  if (choice_bias_ >= 0) count_load(saved.routing);
  if (shared_) shared_->backward_weight(dy, x, saved.shared, all);
}

// The local tokens' choices of each expert minus the mean, all multiplied by the number of experts: so the
// sums are of integers, without rounding.
void Experts::count_load(const Routing& routing) {
  const int64_t local = sizes_.local_tokens, first = gathers() ? sizes_.first_local * top_ : 0;
  std::vector<double> load(size_t(experts_), -double(local * top_));
  for (int64_t i = first; i < first + local * top_; ++i)
    load[size_t(routing.chosen[size_t(i)])] += double(experts_);
  const DataType wide = parameters_.state_type();
  const Buffer above(device_, experts_ * size_of(wide));
  device_.upload(wide, load.data(), experts_, above.data());
  add_gradient(choice_bias_, experts_, above.data());
}

void Experts::backward_routed_weight(const void* x, Saved& saved) {
  const int64_t state = sizes_.state_unit(), hidden = sizes_.hidden;
  const Routing& routing = saved.routing;
  const auto gradient_at = [&](int index, int64_t element) -> void* {
    return index < 0 ? nullptr : beyond(parameters_.gradient(index), element * state);
  };
  router_.backward_weight(saved.d_logits.data(), x);
  for_each_chunk(routing, up_width_, hidden, [&](const Chunk& c, const LinearShape& shape) {
    run(LinearBackwardWeight{.shape = shape,
                             .dy = row_at(saved.d_up, c.first, up_width_),
                             .x = row_at(saved.copies, c.first, hidden),
                             .dw = gradient_at(up_, c.expert * up_width_ * hidden),
                             .dbias = gradient_at(up_bias_, c.expert * up_width_)});
  });
  const Buffer weighted = weighted_rows(saved);
  for_each_chunk(routing, hidden, width_, [&](const Chunk& c, const LinearShape& shape) {
    run(LinearBackwardWeight{.shape = shape,
                             .dy = row_at(saved.d_copies_out, c.first, hidden),
                             .x = row_at(weighted, c.first, width_),
                             .dw = gradient_at(down_, c.expert * hidden * width_)});
    if (down_bias_ >= 0) backward_down_bias(c, saved, gradient_at(down_bias_, c.expert * hidden), nullptr);
  });
}

}  // namespace mpt::runtime
