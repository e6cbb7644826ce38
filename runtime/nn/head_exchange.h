// SPDX-License-Identifier: Apache-2.0
#pragma once

// HeadExchange: converts between rows of a context rank's own tokens, with all heads, and rows of all tokens,
// with the rank's share of the heads (Jacobs et al. 2023, arXiv:2309.14509). A row has several parts that
// ranks share out: queries, keys, values.

#include <vector>

#include "runtime/nn/part.h"

namespace mpt::runtime {

/// Parts of a row, in units of `columns` elements.
struct HeadParts {
  std::vector<int64_t> units;
  int64_t columns = 0;
  int64_t row_units() const;
  int64_t row() const { return row_units() * columns; }
};

class HeadExchange : private Part {
 public:
  explicit HeadExchange(const PartContext& context)
      : Part(context), context_group_(*context.groups.context) {}

  int64_t ranks() const { return context_group_.size(); }
  int64_t rank() const { return context_group_.rank(); }
  /// [b*s of the rank, row] to [b*s of all ranks, row / ranks].
  Buffer to_heads(const void* tokens, const HeadParts& parts) const;
  /// The inverse.
  void to_tokens(const Buffer& exchanged, const HeadParts& parts, void* tokens) const;

 private:
  template <class F>
  void for_each_part(const HeadParts& parts, F&& body) const;
  template <class F>
  void for_each_sequence(int64_t row_bytes, F&& body) const;

  Communicator& context_group_;
};

}  // namespace mpt::runtime
