// SPDX-License-Identifier: Apache-2.0
#include "runtime/nn/head_exchange.h"

#include <numeric>

namespace mpt::runtime {
int64_t HeadParts::row_units() const { return std::accumulate(units.begin(), units.end(), int64_t{0}); }

// Calls body(rank, column, own_column, columns) for each part of each rank: its column in a token's row, and
// in the rank's row.
template <class F>
void HeadExchange::for_each_part(const HeadParts& parts, F&& body) const {
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    int64_t first = 0, own_first = 0;
    for (const int64_t units : parts.units) {
      const int64_t own = units / ranks();
      body(rank, (first + rank * own) * parts.columns, own_first * parts.columns, own * parts.columns);
      first += units;
      own_first += own;
    }
  }
}

// Calls body(apart, together, bytes) for the sequences of each rank: their offsets in [rank][b][s of the
// rank] and in [b][rank][s of the rank].
template <class F>
void HeadExchange::for_each_sequence(int64_t row_bytes, F&& body) const {
  const int64_t bytes = sizes_.sequence * row_bytes;
  for (int64_t rank = 0; rank < ranks(); ++rank)
    for (int64_t b = 0; b < sizes_.batch; ++b)
      body((rank * sizes_.batch + b) * bytes, (b * ranks() + rank) * bytes, bytes);
}

Buffer HeadExchange::to_heads(const void* tokens, const HeadParts& parts) const {
  const int64_t row = parts.row(), own_row = row / ranks(), unit = sizes_.unit();
  const Buffer sent(device_, sizes_.tokens * row * unit), received(device_, sent.bytes());
  for_each_part(parts, [&](int64_t rank, int64_t column, int64_t own_column, int64_t columns) {
    copy_columns(sizes_.tokens, columns, beyond(tokens, column * unit), row,
                 beyond(sent.data(), (rank * sizes_.tokens * own_row + own_column) * unit), own_row);
  });
  const std::vector<int64_t> bytes(size_t(ranks()), sent.bytes() / ranks());
  context_group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  Buffer exchanged(device_, sent.bytes());
  for_each_sequence(own_row * unit, [&](int64_t apart, int64_t together, int64_t count) {
    device_.copy(beyond(exchanged.data(), together), beyond(received.data(), apart), count);
  });
  return exchanged;
}

void HeadExchange::to_tokens(const Buffer& exchanged, const HeadParts& parts, void* tokens) const {
  const int64_t row = parts.row(), own_row = row / ranks(), unit = sizes_.unit();
  const Buffer sent(device_, exchanged.bytes()), received(device_, exchanged.bytes());
  for_each_sequence(own_row * unit, [&](int64_t apart, int64_t together, int64_t count) {
    device_.copy(beyond(sent.data(), apart), beyond(exchanged.data(), together), count);
  });
  const std::vector<int64_t> bytes(size_t(ranks()), sent.bytes() / ranks());
  context_group_.all_to_all(sent.data(), bytes, received.data(), bytes);
  for_each_part(parts, [&](int64_t rank, int64_t column, int64_t own_column, int64_t columns) {
    copy_columns(sizes_.tokens, columns,
                 beyond(received.data(), (rank * sizes_.tokens * own_row + own_column) * unit), own_row,
                 beyond(tokens, column * unit), row);
  });
}

}  // namespace mpt::runtime
