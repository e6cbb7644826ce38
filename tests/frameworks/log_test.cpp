// SPDX-License-Identifier: Apache-2.0

// What logs of frameworks say of their steps.

#include <gtest/gtest.h>

#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

TEST(Log, MegatronLmWritesMilliseconds) {
  const std::vector<std::string> lines{
      " iteration 1/10 | consumed samples: 8 | elapsed time per iteration (ms): 1,250.5 | lr: 1.0E-4",
      "saving checkpoint", " iteration 2/10 | elapsed time per iteration (ms): 500 |"};
  EXPECT_EQ(megatron_core_steps(lines, {}), (std::vector<double>{1.2505, 0.5}));
  EXPECT_TRUE(megatron_core_steps({"tps: 5"}, {}).empty());
}

TEST(Log, TorchtitanWritesTokensPerSecondAndGpu) {
  Plan plan;
  plan.layout.data = 4;
  plan.workload = {8, 1024};
  EXPECT_EQ(torchtitan_steps({"step: 1  loss: 8.1  tps: 1,024  mfu: 40%", "step: 2  tps: 2048"}, plan),
            (std::vector<double>{2.0, 1.0}));
  EXPECT_TRUE(torchtitan_steps({"tps: none", "elapsed time per iteration (ms): 3"}, plan).empty());
}

}  // namespace
}  // namespace mpt::frameworks
