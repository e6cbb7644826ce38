// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

namespace mpt {
namespace {

TEST(Threads, AllBodiesRunAndTheFirstErrorByNumberIsThrown) {
  std::vector<int> ran(5);
  in_threads(ran.size(), [&](size_t i) { ran[i] = 1; });
  EXPECT_EQ(ran, std::vector<int>(5, 1));
  const auto fail = [&](size_t i) {
    ran[i] = 2;
    if (i == 2 || i == 4) throw std::runtime_error(std::to_string(i));
  };
  try {
    in_threads(ran.size(), fail);
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "2");
  }
  EXPECT_EQ(ran, std::vector<int>(5, 2));
  in_threads(0, [](size_t) { FAIL(); });
}

}  // namespace
}  // namespace mpt
