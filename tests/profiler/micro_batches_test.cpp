// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/error.h"
#include "models/zoo.h"
#include "profiler/measure/profile_machine.h"

namespace mpt::profiler {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

TEST(FittingMicroBatches, ArePowersOfTwoUpToTheMost) {
  const ModelSpec model = models::load_model("tiny-gpt");
  EXPECT_EQ(fitting_micro_batches(model, 256, 8, 64 * kGiB), (std::vector<int64_t>{1, 2, 4, 8}));
  EXPECT_EQ(fitting_micro_batches(model, 256, 7, 64 * kGiB), (std::vector<int64_t>{1, 2, 4}));
}

// A layer of llama3-8b has 218 M parameters: weights and gradients of two instances are 3.5 GB; its table of
// 128256 x 4096 words takes 8.4 GB.
TEST(FittingMicroBatches, StopWhereTheMemoryEnds) {
  const ModelSpec model = models::load_model("llama3-8b");
  const auto all = fitting_micro_batches(model, 512, 64, 1000 * kGiB);
  const auto some = fitting_micro_batches(model, 512, 64, 12 * kGiB);
  EXPECT_EQ(all.size(), 7u);
  ASSERT_FALSE(some.empty());
  EXPECT_LT(some.size(), all.size());
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
  try {
    fitting_micro_batches(model, 512, 64, 7 * kGiB);
    FAIL() << "the table alone is larger";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("llama3-8b"), std::string::npos) << text;
    EXPECT_NE(text.find("7 GiB"), std::string::npos) << text;
    EXPECT_NE(text.find("--seq"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mpt::profiler
