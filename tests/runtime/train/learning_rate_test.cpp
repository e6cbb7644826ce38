// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "runtime/train/optimizer_options.h"

namespace mpt::runtime {
namespace {

TEST(LearningRate, WarmsUpLinearlyThenFollowsHalfACosine) {
  TrainOptions o;
  o.steps = 110;
  o.warmup_steps = 10;
  o.learning_rate = 1.0;
  o.minimum_learning_rate = 0.1;
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 10), 1.0);
  EXPECT_NEAR(learning_rate_at(o, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate_at(o, 110), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate_at(o, 1000), 0.1, 1e-12);
  o.warmup_steps = 0;
  EXPECT_DOUBLE_EQ(learning_rate_at(o, 0), 1.0);
}

}  // namespace
}  // namespace mpt::runtime
