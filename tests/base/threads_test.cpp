// SPDX-License-Identifier: Apache-2.0
#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

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

// Whichever thread fails first.
TEST(Threads, TheErrorOfTheLowestIndexIsThrown) {
  for (int round = 0; round < 500; ++round) {
    std::vector<std::atomic<int>> ran(8);
    try {
      on_threads(ran.size(), 4, [&](size_t i, size_t thread) {
        ++ran[i];
        if (i == 1 && round % 2 == 0) std::this_thread::yield();
        if (i >= 1 && i <= 3) throw std::runtime_error(std::to_string(i) + " of " + std::to_string(thread));
      });
      FAIL() << "nothing was thrown";
    } catch (const std::runtime_error& error) {
      ASSERT_EQ(error.what()[0], '1');
      EXPECT_LT(error.what()[5], '4');
    }
    ASSERT_EQ(ran[0], 1);
    ASSERT_EQ(ran[1], 1);
  }
}

}  // namespace
}  // namespace mpt
