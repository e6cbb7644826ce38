// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/attention_core.h"

#include <numeric>

namespace mpt::runtime {
namespace {

// For each query, the number of `keys` at its position minus `distance` or earlier. Both lists rise.
std::vector<int32_t> keys_up_to(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys,
                                int64_t distance) {
  std::vector<int32_t> count;
  for (const int32_t query : queries)
    count.push_back(int32_t(std::upper_bound(keys.begin(), keys.end(), query - distance) - keys.begin()));
  return count;
}

}  // namespace

// Sends a block to the next rank while receiving one from the previous rank.
Posted AttentionCore::pass_on(const Buffer& block, const Buffer& arriving) const {
  return {ring_, "passing keys and values",
          [&group = context_group_, from = block.data(), to = arriving.data(), bytes = block.bytes()] {
            const int ranks = group.size(), rank = group.rank();
            group.send_receive(from, (rank + 1) % ranks, to, (rank - 1 + ranks) % ranks, bytes);
          }};
}

AttentionCore::AttentionCore(const PartContext& context)
    : Part(context), context_group_(*context.groups.context), ring_(context.groups.ring), exchange_(context) {
  if (!rings()) return;
  const int64_t window = sizes_.attention().window;
  for (int rank = 0; rank < context_group_.size(); ++rank) {
    const auto keys = context_positions(sizes_.sequence, context_group_.size(), rank, sizes_.context_method);
    visible_.push_back(keys_up_to(sizes_.positions, keys, 0));
    hidden_.push_back(window > 0 ? keys_up_to(sizes_.positions, keys, window) : std::vector<int32_t>{});
  }
}

AttentionBlock AttentionCore::block_of(int source) const {
  return {sizes_.attention(), sizes_.sequence, visible_[size_t(source)], hidden_[size_t(source)]};
}

AttentionShape AttentionCore::exchanged_shape() const {
  const int64_t ranks = context_group_.size();
  AttentionShape shape = sizes_.attention();
  shape.sequence *= ranks;
  shape.heads /= ranks;
  shape.kv_heads /= ranks;
  return shape;
}

int64_t AttentionCore::first_sink() const {
  return exchanges() ? context_group_.rank() * exchanged_shape().heads : 0;
}

void AttentionCore::prepare(Buffer& qkv) const {
  if (exchanges()) qkv = exchange_.to_heads(qkv.data(), parts_of(false));
}

void AttentionCore::forward(const Buffer& qkv, void* out, void* log_sum_exp, const void* sinks) const {
  const AttentionShape shape = exchanges() ? exchanged_shape() : sizes_.attention();
  const auto own = exchanges() ? Buffer(device_, shape.tokens() * shape.outputs() * sizes_.unit()) : Buffer();
  void* const result = own ? own.data() : out;
  if (rings())
    ring_forward(qkv, result, log_sum_exp);
  else
    run(AttentionForward{.shape = shape, .qkv = qkv.data(), .out = result, .log_sum_exp = log_sum_exp});
  if (sinks != nullptr)
    run(SinkForward{.shape = shape,
                    .sinks = beyond(sinks, first_sink() * sizes_.unit()),
                    .out = result,
                    .log_sum_exp = log_sum_exp});
  if (own) exchange_.to_tokens(own, parts_of(true), out);
}

void AttentionCore::backward_sinks(const AttentionShape& shape, const Sinks& sinks, const void* dout,
                                   const void* out, const void* log_sum_exp) const {
  if (sinks.values == nullptr) return;
  device_.zero(sinks.gradient, sizes_.heads * sizes_.state_unit());
  run(SinkBackward{.shape = shape,
                   .sinks = beyond(sinks.values, first_sink() * sizes_.unit()),
                   .dout = dout,
                   .out = out,
                   .log_sum_exp = log_sum_exp,
                   .dsinks = beyond(sinks.gradient, first_sink() * sizes_.state_unit())});
}

void AttentionCore::backward(const void* dout, const Buffer& qkv, const void* out, const void* log_sum_exp,
                             void* dqkv, const Sinks& sinks) const {
  if (!exchanges()) {
    backward_sinks(sizes_.attention(), sinks, dout, out, log_sum_exp);
    if (rings()) return ring_backward(dout, qkv, out, log_sum_exp, dqkv);
    return run(AttentionBackward{.shape = sizes_.attention(),
                                 .dout = dout,
                                 .qkv = qkv.data(),
                                 .out = out,
                                 .log_sum_exp = log_sum_exp,
                                 .dqkv = dqkv});
  }
  const Buffer own_dout = exchange_.to_heads(dout, parts_of(true)),
               own_out = exchange_.to_heads(out, parts_of(true));
  const Buffer own(device_, qkv.bytes());
  backward_sinks(exchanged_shape(), sinks, own_dout.data(), own_out.data(), log_sum_exp);
  run(AttentionBackward{.shape = exchanged_shape(),
                        .dout = own_dout.data(),
                        .qkv = qkv.data(),
                        .out = own_out.data(),
                        .log_sum_exp = log_sum_exp,
                        .dqkv = own.data()});
  exchange_.to_tokens(own, parts_of(false), dqkv);
}

// Copies keys and values out of the packed rows.
Buffer AttentionCore::own_block(const Buffer& qkv) const {
  const AttentionShape s = sizes_.attention();
  const int64_t queries = s.heads * s.head_dim, width = s.kv_row();
  Buffer block(device_, s.tokens() * width * sizes_.unit());
  copy_columns(s.tokens(), width, beyond(qkv.data(), queries * sizes_.unit()), s.row(), block.data(), width);
  return block;
}

void AttentionCore::ring_forward(const Buffer& qkv, void* out, void* log_sum_exp) const {
  const AttentionShape s = sizes_.attention();
  const int ranks = context_group_.size(), rank = context_group_.rank();
  const int64_t width = s.outputs();
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes()), sum;
  if (wide != sizes_.type) sum = numbers(s.tokens() * width);
  void* const result = sum ? sum.data() : out;
  for (int step = 0; step < ranks; ++step) {
    const AttentionBlock keys = block_of((rank - step + ranks) % ranks);
    std::optional<Posted> passing;
    if (step + 1 < ranks) passing.emplace(pass_on(block, arriving));
    run(AttentionBlockForward{.block = keys,
                              .qkv = qkv.data(),
                              .kv = block.data(),
                              .first = step == 0,
                              .out = result,
                              .log_sum_exp = log_sum_exp});
    if (passing) passing->wait();
    std::swap(block, arriving);
  }
  if (sum) device_.convert(wide, sum.data(), sizes_.type, out, s.tokens() * width);
}

// Blocks go round the ring again, each followed by its gradient. While the other ranks' sum for a block is in
// transit, this rank computes its own part, then adds it. After the last step gradients go one rank further
// and are complete.
void AttentionCore::ring_backward(const void* dout, const Buffer& qkv, const void* out,
                                  const void* log_sum_exp, void* dqkv) const {
  const AttentionShape s = sizes_.attention();
  const int ranks = context_group_.size(), rank = context_group_.rank();
  const int64_t width = s.heads * s.head_dim, kv_width = s.kv_row();
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes());
  Buffer part = numbers(s.tokens() * kv_width), gradient = numbers(s.tokens() * kv_width);
  const Buffer arriving_gradient(device_, part.bytes());
  const Buffer dq = numbers(s.tokens() * width);
  device_.zero(dq.data(), dq.bytes());
  Posted passing_gradient;
  for (int step = 0; step < ranks; ++step) {
    const AttentionBlock keys = block_of((rank - step + ranks) % ranks);
    std::optional<Posted> passing;
    if (step + 1 < ranks) passing.emplace(pass_on(block, arriving));
    device_.zero(part.data(), part.bytes());
    run(AttentionBlockBackward{.block = keys,
                               .dout = dout,
                               .qkv = qkv.data(),
                               .kv = block.data(),
                               .out = out,
                               .log_sum_exp = log_sum_exp,
                               .dq = dq.data(),
                               .dkv = part.data()});
    passing_gradient.wait();
    if (step > 0)
      device_.run(wide, ResidualAdd{.count = s.tokens() * kv_width,
                                    .a = arriving_gradient.data(),
                                    .b = part.data(),
                                    .y = part.data()});
    std::swap(gradient, part);
    passing_gradient = pass_on(gradient, arriving_gradient);
    if (passing) passing->wait();
    std::swap(block, arriving);
  }
  const auto put = [&](const Buffer& from, int64_t columns, void* to) {
    device_.run(wide, CopyColumns{.to_type = sizes_.type,
                                  .rows = s.tokens(),
                                  .columns = columns,
                                  .from = from.data(),
                                  .from_stride = columns,
                                  .to = to,
                                  .to_stride = s.row()});
  };
  put(dq, width, dqkv);
  passing_gradient.wait();
  put(arriving_gradient, kv_width, beyond(dqkv, width * sizes_.unit()));
}

// A unit of columns divides both the heads of keys and those of values.
HeadParts AttentionCore::parts_of(bool outputs) const {
  const AttentionShape s = sizes_.attention();
  const int64_t unit = std::gcd(s.head_dim, s.values());
  const int64_t of_key = s.head_dim / unit, of_value = s.values() / unit;
  if (outputs) return {{s.heads * of_value}, unit};
  return {{s.heads * of_key, s.kv_heads * of_key, s.kv_heads * of_value}, unit};
}

}  // namespace mpt::runtime
