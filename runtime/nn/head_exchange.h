// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeadExchange: between rows of a context rank's own tokens, with all heads, and rows of all tokens, with the
// rank's share of the heads (Jacobs et al. 2023, arXiv:2309.14509). A row has several parts, each of which
// ranks share out: queries, keys, values.

#include <vector>

#include "runtime/nn/rank_sizes.h"

namespace mpt::runtime {

/// Parts of a row, in units of `columns` elements.
struct HeadParts {
  std::vector<int64_t> units;
  int64_t columns = 0;
  int64_t row_units() const;
  int64_t row() const { return row_units() * columns; }
};

class HeadExchange {
 public:
  HeadExchange(const RankSizes& sizes, Communicator& context, Device& device)
      : sizes_(sizes), group_(context), device_(device) {}

  int64_t ranks() const { return group_.size(); }
  int64_t rank() const { return group_.rank(); }
  /// [b*s of the rank, row] to [b*s of all ranks, row / ranks].
  Buffer to_heads(const void* tokens, const HeadParts& parts) const;
  /// The way back.
  void to_tokens(const Buffer& exchanged, const HeadParts& parts, void* tokens) const;

 private:
  template <class F>
  void for_each_part(const HeadParts& parts, F&& body) const;
  template <class F>
  void for_each_sequence(int64_t row_bytes, F&& body) const;

  const RankSizes& sizes_;
  Communicator& group_;
  Device& device_;
};

}  // namespace mpt::runtime
