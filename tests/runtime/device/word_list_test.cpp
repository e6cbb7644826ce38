// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/word_list.h"

#include <gtest/gtest.h>

namespace mpt::runtime::cuda {
namespace {

TEST(SortedWords, HaveTheirTokensInOrder) {
  const std::vector<int32_t> ids{9, 4, 7, 4, 99, 7, 4};
  const SortedWords sorted(ids.data(), int64_t(ids.size()), 4, 5);
  EXPECT_EQ(sorted.words(), 2) << "9 and 99 are other ranks' words";
  EXPECT_EQ(sorted.numbers(), (std::vector<int32_t>{0, 3, 0, 3, 5, 1, 3, 6, 2, 5}));
}

TEST(SortedWords, OfARankWithoutWords) {
  const std::vector<int32_t> ids{1, 2};
  EXPECT_EQ(SortedWords(ids.data(), 2, 10, 3).words(), 0);
  EXPECT_EQ(SortedWords(ids.data(), 2, 0, 0).numbers(), (std::vector<int32_t>{0}));
}

}  // namespace
}  // namespace mpt::runtime::cuda
