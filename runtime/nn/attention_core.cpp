// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/attention_core.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

namespace mpt::runtime {
namespace {

// Of keys at `keys`, how many lie at a query's position less `distance` or before; both rise.
std::vector<int32_t> keys_up_to(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys,
                                int64_t distance) {
  std::vector<int32_t> count;
  for (const int32_t query : queries)
    count.push_back(int32_t(std::upper_bound(keys.begin(), keys.end(), query - distance) - keys.begin()));
  return count;
}

}  // namespace

// A block goes to the next rank while another arrives from the one before.
Posted AttentionCore::pass_on(const Buffer& block, const Buffer& arriving) const {
  return {ring_, "passing keys and values",
          [&group = group_, from = block.data(), to = arriving.data(), bytes = block.bytes()] {
            const int ranks = group.size(), rank = group.rank();
            group.send_receive(from, (rank + 1) % ranks, to, (rank - 1 + ranks) % ranks, bytes);
          }};
}

AttentionCore::AttentionCore(const RankSizes& sizes, const LayerGroups& groups, Device& device)
    : sizes_(sizes), group_(*groups.context), ring_(groups.ring), device_(device) {
  if (!rings()) return;
  const int64_t window = sizes.attention().window;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto keys = context_positions(sizes.sequence, group_.size(), rank, sizes.context_method);
    visible_.push_back(keys_up_to(sizes.positions, keys, 0));
    hidden_.push_back(window > 0 ? keys_up_to(sizes.positions, keys, window) : std::vector<int32_t>{});
  }
}

AttentionBlock AttentionCore::block_of(int source) const {
  return {sizes_.attention(), sizes_.sequence, visible_[size_t(source)], hidden_[size_t(source)]};
}

AttentionShape AttentionCore::exchanged_shape() const {
  const int64_t ranks = group_.size();
  AttentionShape shape = sizes_.attention();
  shape.sequence *= ranks;
  shape.heads /= ranks;
  shape.kv_heads /= ranks;
  return shape;
}

int64_t AttentionCore::first_sink() const {
  return exchanges() ? group_.rank() * exchanged_shape().heads : 0;
}

void AttentionCore::prepare(Buffer& qkv) const {
  if (exchanges()) qkv = to_heads(qkv.data(), false);
}

void AttentionCore::forward(const Buffer& qkv, void* out, void* log_sum_exp, const void* sinks) const {
  const AttentionShape shape = exchanges() ? exchanged_shape() : sizes_.attention();
  const Buffer own =
      exchanges() ? Buffer(device_, shape.tokens() * shape.outputs() * sizes_.unit()) : Buffer();
  void* const result = own ? own.data() : out;
  if (rings()) {
    ring_forward(qkv, result, log_sum_exp);
  } else {
    device_.attention_forward(sizes_.type, shape, qkv.data(), result, log_sum_exp);
  }
  if (sinks != nullptr) {
    device_.sink_forward(sizes_.type, shape, static_cast<const char*>(sinks) + first_sink() * sizes_.unit(),
                         result, log_sum_exp);
  }
  if (own) to_tokens(own, true, out);
}

void AttentionCore::backward_sinks(const AttentionShape& shape, const Sinks& sinks, const void* dout,
                                   const void* out, const void* log_sum_exp) const {
  if (sinks.values == nullptr) return;
  device_.zero(sinks.gradient, sizes_.heads * sizes_.state_unit());
  device_.sink_backward(sizes_.type, shape,
                        static_cast<const char*>(sinks.values) + first_sink() * sizes_.unit(), dout, out,
                        log_sum_exp, static_cast<char*>(sinks.gradient) + first_sink() * sizes_.state_unit());
}

void AttentionCore::backward(const void* dout, const Buffer& qkv, const void* out, const void* log_sum_exp,
                             void* dqkv, const Sinks& sinks) const {
  if (!exchanges()) {
    backward_sinks(sizes_.attention(), sinks, dout, out, log_sum_exp);
    if (rings()) return ring_backward(dout, qkv, out, log_sum_exp, dqkv);
    return device_.attention_backward(sizes_.type, sizes_.attention(), dout, qkv.data(), out, log_sum_exp,
                                      dqkv);
  }
  const Buffer own_dout = to_heads(dout, true), own_out = to_heads(out, true);
  const Buffer own(device_, qkv.bytes());
  backward_sinks(exchanged_shape(), sinks, own_dout.data(), own_out.data(), log_sum_exp);
  device_.attention_backward(sizes_.type, exchanged_shape(), own_dout.data(), qkv.data(), own_out.data(),
                             log_sum_exp, own.data());
  to_tokens(own, false, dqkv);
}

// Keys and values out of the packed rows.
Buffer AttentionCore::own_block(const Buffer& qkv) const {
  const AttentionShape s = sizes_.attention();
  const int64_t queries = s.heads * s.head_dim, width = s.kv_row();
  Buffer block(device_, s.tokens() * width * sizes_.unit());
  device_.copy_columns(sizes_.type, sizes_.type, s.tokens(), width,
                       static_cast<const char*>(qkv.data()) + queries * sizes_.unit(), s.row(), block.data(),
                       width);
  return block;
}

void AttentionCore::ring_forward(const Buffer& qkv, void* out, void* log_sum_exp) const {
  const AttentionShape s = sizes_.attention();
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t width = s.outputs();
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes()), sum;
  if (wide != sizes_.type) sum = Buffer(device_, s.tokens() * width * sizes_.state_unit());
  void* const result = sum ? sum.data() : out;
  for (int step = 0; step < ranks; ++step) {
    const int source = (rank - step + ranks) % ranks;
    const AttentionBlock keys = block_of(source);
    std::optional<Posted> passing;
    if (step + 1 < ranks) passing.emplace(pass_on(block, arriving));
    device_.attention_block_forward(sizes_.type, keys, qkv.data(), block.data(), step == 0, result,
                                    log_sum_exp);
    if (passing) passing->wait();
    std::swap(block, arriving);
  }
  if (sum) device_.convert(wide, sum.data(), sizes_.type, out, s.tokens() * width);
}

// Blocks go round once more, and behind each its gradient: while what others have added to it travels, this
// rank's part is computed, and then added. After the last step gradients go one further, and are at home.
void AttentionCore::ring_backward(const void* dout, const Buffer& qkv, const void* out,
                                  const void* log_sum_exp, void* dqkv) const {
  const AttentionShape s = sizes_.attention();
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t width = s.heads * s.head_dim, kv_width = s.kv_row();
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes());
  Buffer part(device_, s.tokens() * kv_width * sizes_.state_unit()), gradient(device_, part.bytes());
  const Buffer arriving_gradient(device_, part.bytes());
  const Buffer dq(device_, s.tokens() * width * sizes_.state_unit());
  device_.zero(dq.data(), dq.bytes());
  Posted passing_gradient;
  for (int step = 0; step < ranks; ++step) {
    const int source = (rank - step + ranks) % ranks;
    const AttentionBlock keys = block_of(source);
    std::optional<Posted> passing;
    if (step + 1 < ranks) passing.emplace(pass_on(block, arriving));
    device_.zero(part.data(), part.bytes());
    device_.attention_block_backward(sizes_.type, keys, dout, qkv.data(), block.data(), out, log_sum_exp,
                                     dq.data(), part.data());
    passing_gradient.wait();
    if (step > 0) {
      device_.residual_add(wide, s.tokens() * kv_width, arriving_gradient.data(), part.data(), part.data());
    }
    std::swap(gradient, part);
    passing_gradient = pass_on(gradient, arriving_gradient);
    if (passing) passing->wait();
    std::swap(block, arriving);
  }
  device_.copy_columns(wide, sizes_.type, s.tokens(), width, dq.data(), width, dqkv, s.row());
  passing_gradient.wait();
  device_.copy_columns(wide, sizes_.type, s.tokens(), kv_width, arriving_gradient.data(), kv_width,
                       static_cast<char*>(dqkv) + width * sizes_.unit(), s.row());
}

namespace {

// Rows of unit_columns() on their way between tokens [b*s][units] and parts by rank [rank][b*s][units of the
// rank]. `groups`: units of queries, then of keys, then of values, each cut into `ranks` runs.
std::vector<int32_t> by_rank(int64_t tokens, const std::vector<int64_t>& groups, int64_t ranks) {
  int64_t row = 0;
  for (const int64_t heads : groups) row += heads;
  std::vector<int32_t> index;
  index.reserve(size_t(tokens * row));
  for (int64_t rank = 0; rank < ranks; ++rank) {
    for (int64_t t = 0; t < tokens; ++t) {
      int64_t first = 0;
      for (const int64_t heads : groups) {
        const int64_t own = heads / ranks;
        for (int64_t h = 0; h < own; ++h) index.push_back(int32_t(t * row + first + rank * own + h));
        first += heads;
      }
    }
  }
  return index;
}

// Rows of a token's heads: from [rank][b][s of the rank] to [b][rank][s of the rank].
std::vector<int32_t> by_sequence(int64_t batch, int64_t sequence, int64_t ranks) {
  std::vector<int32_t> index;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      for (int64_t i = 0; i < sequence; ++i) index.push_back(int32_t((rank * batch + b) * sequence + i));
    }
  }
  return index;
}

std::vector<int32_t> inverse(const std::vector<int32_t>& index) {
  std::vector<int32_t> out(index.size());
  for (size_t i = 0; i < index.size(); ++i) out[size_t(index[i])] = int32_t(i);
  return out;
}

}  // namespace

// Heads are cut into units that those of keys and those of values are made of.
int64_t AttentionCore::unit_columns() const { return std::gcd(sizes_.head_dim, sizes_.attention().values()); }

std::vector<int64_t> AttentionCore::units_of(bool outputs) const {
  const AttentionShape s = sizes_.attention();
  const int64_t unit = unit_columns(), of_key = s.head_dim / unit, of_value = s.values() / unit;
  if (outputs) return {s.heads * of_value};
  return {s.heads * of_key, s.kv_heads * of_key, s.kv_heads * of_value};
}

// Of all heads and the rank's tokens -> of the rank's heads and all tokens [b * ranks s]: queries, keys and
// values, or outputs.
Buffer AttentionCore::to_heads(const void* tokens, bool outputs) const {
  const std::vector<int64_t> units = units_of(outputs);
  const int64_t ranks = group_.size(), of_token = std::accumulate(units.begin(), units.end(), int64_t{0});
  const int64_t rows = sizes_.tokens * of_token, columns = unit_columns();
  const Buffer sent(device_, rows * columns * sizes_.unit()), received(device_, sent.bytes());
  device_.gather_rows(sizes_.type, rows, columns, by_rank(sizes_.tokens, units, ranks).data(), tokens,
                      sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  Buffer exchanged(device_, sent.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, of_token / ranks * columns,
                      by_sequence(sizes_.batch, sizes_.sequence, ranks).data(), received.data(),
                      exchanged.data());
  return exchanged;
}

void AttentionCore::to_tokens(const Buffer& exchanged, bool outputs, void* tokens) const {
  const std::vector<int64_t> units = units_of(outputs);
  const int64_t ranks = group_.size(), of_token = std::accumulate(units.begin(), units.end(), int64_t{0});
  const int64_t rows = sizes_.tokens * of_token, columns = unit_columns();
  const Buffer sent(device_, exchanged.bytes()), received(device_, exchanged.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, of_token / ranks * columns,
                      inverse(by_sequence(sizes_.batch, sizes_.sequence, ranks)).data(), exchanged.data(),
                      sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  device_.gather_rows(sizes_.type, rows, columns, inverse(by_rank(sizes_.tokens, units, ranks)).data(),
                      received.data(), tokens);
}

}  // namespace mpt::runtime
