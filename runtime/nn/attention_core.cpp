// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/attention_core.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace mpt::runtime {
namespace {

// Of keys at `keys`, how many each query at `queries` sees; both rise.
std::vector<int32_t> visible_keys(const std::vector<int32_t>& queries, const std::vector<int32_t>& keys) {
  std::vector<int32_t> visible;
  for (const int32_t query : queries)
    visible.push_back(int32_t(std::upper_bound(keys.begin(), keys.end(), query) - keys.begin()));
  return visible;
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
  for (int rank = 0; rank < group_.size(); ++rank) {
    visible_.push_back(visible_keys(
        sizes.positions, context_positions(sizes.sequence, group_.size(), rank, sizes.context_method)));
  }
}

AttentionShape AttentionCore::exchanged_shape() const {
  const int64_t ranks = group_.size();
  return {sizes_.batch, sizes_.sequence * ranks, sizes_.heads / ranks, sizes_.kv_heads / ranks,
          sizes_.head_dim};
}

void AttentionCore::prepare(Buffer& qkv) const {
  if (exchanges()) qkv = to_heads(qkv.data(), sizes_.heads, sizes_.kv_heads);
}

void AttentionCore::forward(const Buffer& qkv, void* out, void* log_sum_exp) const {
  if (rings()) return ring_forward(qkv, out, log_sum_exp);
  if (!exchanges())
    return device_.attention_forward(sizes_.type, sizes_.attention(), qkv.data(), out, log_sum_exp);
  const AttentionShape shape = exchanged_shape();
  const Buffer own(device_, shape.tokens() * shape.heads * shape.head_dim * sizes_.unit());
  device_.attention_forward(sizes_.type, shape, qkv.data(), own.data(), log_sum_exp);
  to_tokens(own, sizes_.heads, 0, out);
}

void AttentionCore::backward(const void* dout, const Buffer& qkv, const void* out, const void* log_sum_exp,
                             void* dqkv) const {
  if (rings()) return ring_backward(dout, qkv, out, log_sum_exp, dqkv);
  if (!exchanges()) {
    return device_.attention_backward(sizes_.type, sizes_.attention(), dout, qkv.data(), out, log_sum_exp,
                                      dqkv);
  }
  const Buffer own_dout = to_heads(dout, sizes_.heads, 0), own_out = to_heads(out, sizes_.heads, 0);
  const Buffer own(device_, qkv.bytes());
  device_.attention_backward(sizes_.type, exchanged_shape(), own_dout.data(), qkv.data(), own_out.data(),
                             log_sum_exp, own.data());
  to_tokens(own, sizes_.heads, sizes_.kv_heads, dqkv);
}

// Keys and values out of the packed rows.
Buffer AttentionCore::own_block(const Buffer& qkv) const {
  const AttentionShape s = sizes_.attention();
  const int64_t queries = s.heads * s.head_dim, width = s.row() - queries;
  Buffer block(device_, s.tokens() * width * sizes_.unit());
  device_.copy_columns(sizes_.type, sizes_.type, s.tokens(), width,
                       static_cast<const char*>(qkv.data()) + queries * sizes_.unit(), s.row(), block.data(),
                       width);
  return block;
}

void AttentionCore::ring_forward(const Buffer& qkv, void* out, void* log_sum_exp) const {
  const AttentionShape s = sizes_.attention();
  const int ranks = group_.size(), rank = group_.rank();
  const int64_t width = s.heads * s.head_dim;
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes()), sum;
  if (wide != sizes_.type) sum = Buffer(device_, s.tokens() * width * sizes_.state_unit());
  void* const result = sum ? sum.data() : out;
  for (int step = 0; step < ranks; ++step) {
    const int source = (rank - step + ranks) % ranks;
    const AttentionBlock keys{s, s.sequence, visible_[size_t(source)]};
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
  const int64_t width = s.heads * s.head_dim, kv_width = s.row() - width;
  const DataType wide = state_type_of(sizes_.type);
  Buffer block = own_block(qkv), arriving(device_, block.bytes());
  Buffer part(device_, s.tokens() * kv_width * sizes_.state_unit()), gradient(device_, part.bytes());
  const Buffer arriving_gradient(device_, part.bytes());
  const Buffer dq(device_, s.tokens() * width * sizes_.state_unit());
  device_.zero(dq.data(), dq.bytes());
  Posted passing_gradient;
  for (int step = 0; step < ranks; ++step) {
    const int source = (rank - step + ranks) % ranks;
    const AttentionBlock keys{s, s.sequence, visible_[size_t(source)]};
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

// Rows of head_dim on their way between tokens [b*s][heads] and parts by rank [rank][b*s][heads of the rank].
// `groups`: heads of queries, then of keys, then of values, each cut into `ranks` runs.
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

std::vector<int64_t> groups_of(int64_t heads, int64_t kv_heads) {
  return kv_heads > 0 ? std::vector<int64_t>{heads, kv_heads, kv_heads} : std::vector<int64_t>{heads};
}

}  // namespace

// [b*s, heads d] of all heads and the rank's tokens -> [b * ranks s, heads / ranks d].
Buffer AttentionCore::to_heads(const void* tokens, int64_t heads, int64_t kv_heads) const {
  const int64_t ranks = group_.size(), rows = sizes_.tokens * (heads + 2 * kv_heads);
  const int64_t row = (heads + 2 * kv_heads) / ranks * sizes_.head_dim;
  const Buffer sent(device_, rows * sizes_.head_dim * sizes_.unit()), received(device_, sent.bytes());
  device_.gather_rows(sizes_.type, rows, sizes_.head_dim,
                      by_rank(sizes_.tokens, groups_of(heads, kv_heads), ranks).data(), tokens, sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  Buffer exchanged(device_, sent.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, row,
                      by_sequence(sizes_.batch, sizes_.sequence, ranks).data(), received.data(),
                      exchanged.data());
  return exchanged;
}

void AttentionCore::to_tokens(const Buffer& exchanged, int64_t heads, int64_t kv_heads, void* tokens) const {
  const int64_t ranks = group_.size(), rows = sizes_.tokens * (heads + 2 * kv_heads);
  const int64_t row = (heads + 2 * kv_heads) / ranks * sizes_.head_dim;
  const Buffer sent(device_, exchanged.bytes()), received(device_, exchanged.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, row,
                      inverse(by_sequence(sizes_.batch, sizes_.sequence, ranks)).data(), exchanged.data(),
                      sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  device_.gather_rows(sizes_.type, rows, sizes_.head_dim,
                      inverse(by_rank(sizes_.tokens, groups_of(heads, kv_heads), ranks)).data(),
                      received.data(), tokens);
}

}  // namespace mpt::runtime
