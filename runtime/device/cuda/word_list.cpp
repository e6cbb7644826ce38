// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/word_list.h"

#include <cstddef>

namespace mpt::runtime::cuda {

SortedWords::SortedWords(const int32_t* ids, int64_t tokens, int64_t first, int64_t rows) {
  std::vector<int32_t> ends(size_t(rows) + 1, 0);  // of row - 1, then of row
  const auto row_of = [&](int64_t token) { return int64_t(ids[token]) - first; };
  const auto is_here = [&](int64_t row) { return row >= 0 && row < rows; };
  for (int64_t t = 0; t < tokens; ++t)
    if (is_here(row_of(t))) ++ends[size_t(row_of(t)) + 1];
  std::vector<int32_t> words, starts;
  for (size_t row = 0; row < size_t(rows); ++row) {
    if (ends[row + 1] > 0) {
      words.push_back(int32_t(row));
      starts.push_back(ends[row]);
    }
    ends[row + 1] += ends[row];
  }
  starts.push_back(ends.back());
  words_ = int64_t(words.size());
  numbers_ = std::move(words);
  numbers_.insert(numbers_.end(), starts.begin(), starts.end());
  const size_t before = numbers_.size();
  numbers_.resize(before + size_t(ends.back()));
  for (int64_t t = 0; t < tokens; ++t)
    if (is_here(row_of(t))) numbers_[before + size_t(ends[size_t(row_of(t))]++)] = int32_t(t);
}

}  // namespace mpt::runtime::cuda
