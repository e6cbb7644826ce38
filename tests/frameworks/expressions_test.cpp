// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/expressions.h"

#include <gtest/gtest.h>

#include <string>

namespace mpt::frameworks {
namespace {

TEST(Expressions, WholeNumbersAsShellsComputeThem) {
  EXPECT_EQ(arithmetic_value("8 * 4"), 32);
  EXPECT_EQ(arithmetic_value(" (1 + 2) * 3 - 10 / 4 % 2"), 9);
  EXPECT_EQ(arithmetic_value("-3 + 5"), 2);
  for (const char* text : {"", "1 +", "1 / 0", "x", "(1", "1)", "2 ** 3", "9223372036854775807 + 1", "1.5"})
    EXPECT_FALSE(arithmetic_value(text)) << text;
  EXPECT_FALSE(arithmetic_value(std::string(1000, '(') + "1" + std::string(1000, ')')));
}

TEST(Expressions, ListsOverLayers) {
  const std::vector<int64_t> deepseek = layer_pattern("([0]*3+[1]*58)").value();
  EXPECT_EQ(deepseek.size(), 61u);
  EXPECT_EQ(std::vector<int64_t>(deepseek.begin(), deepseek.begin() + 4), (std::vector<int64_t>{0, 0, 0, 1}));
  EXPECT_EQ(layer_pattern("([0,1]*2)"), (std::vector<int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(layer_pattern("[1, 0]"), (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(layer_pattern("'[0]*1+[1]*2'"), (std::vector<int64_t>{0, 1, 1}));
  for (const char* text :
       {"", "1", "[2]", "[1", "[1]*", "[1]*-1", "[1]*1000000000", "([1]", "[1]+", "__import__('os')"})
    EXPECT_FALSE(layer_pattern(text)) << text;
}

}  // namespace
}  // namespace mpt::frameworks
