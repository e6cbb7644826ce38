// SPDX-License-Identifier: Apache-2.0
#pragma once

// SortedWords: the tokens of each word of a table. The host makes the list for the gradient of the table.

#include <cstdint>
#include <vector>

namespace mpt::runtime::cuda {

class SortedWords {
 public:
  /// Takes the ids of `ids` [tokens] in [first, first + rows), as rows of the table.
  SortedWords(const int32_t* ids, int64_t tokens, int64_t first, int64_t rows);

  /// One list: the words, the starts of their tokens (one more than words), then the tokens.
  const std::vector<int32_t>& numbers() const { return numbers_; }
  int64_t words() const { return words_; }

 private:
  std::vector<int32_t> numbers_;
  int64_t words_ = 0;
};

}  // namespace mpt::runtime::cuda
