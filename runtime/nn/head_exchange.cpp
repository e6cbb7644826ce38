// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/head_exchange.h"

#include <numeric>

namespace mpt::runtime {
namespace {

// Rows of a unit's columns on their way between tokens [b*s][units] and parts by rank [rank][b*s][units of
// the rank]. `groups`: units of each part of a row, cut into `ranks` runs.
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

int64_t HeadParts::row_units() const { return std::accumulate(units.begin(), units.end(), int64_t{0}); }

Buffer HeadExchange::to_heads(const void* tokens, const HeadParts& parts) const {
  const int64_t ranks = group_.size(), of_token = parts.row_units();
  const int64_t rows = sizes_.tokens * of_token, columns = parts.columns;
  const Buffer sent(device_, rows * columns * sizes_.unit()), received(device_, sent.bytes());
  device_.gather_rows(sizes_.type, rows, columns, by_rank(sizes_.tokens, parts.units, ranks).data(), tokens,
                      sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  Buffer exchanged(device_, sent.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, of_token / ranks * columns,
                      by_sequence(sizes_.batch, sizes_.sequence, ranks).data(), received.data(),
                      exchanged.data());
  return exchanged;
}

void HeadExchange::to_tokens(const Buffer& exchanged, const HeadParts& parts, void* tokens) const {
  const int64_t ranks = group_.size(), of_token = parts.row_units();
  const int64_t rows = sizes_.tokens * of_token, columns = parts.columns;
  const Buffer sent(device_, exchanged.bytes()), received(device_, exchanged.bytes());
  device_.gather_rows(sizes_.type, sizes_.tokens * ranks, of_token / ranks * columns,
                      inverse(by_sequence(sizes_.batch, sizes_.sequence, ranks)).data(), exchanged.data(),
                      sent.data());
  const std::vector<int64_t> bytes(size_t(ranks), sent.bytes() / ranks);
  group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  device_.gather_rows(sizes_.type, rows, columns, inverse(by_rank(sizes_.tokens, parts.units, ranks)).data(),
                      received.data(), tokens);
}

}  // namespace mpt::runtime
