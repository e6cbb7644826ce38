// SPDX-License-Identifier: Apache-2.0

#include "frameworks/readers/expressions.h"

#include <gtest/gtest.h>

namespace mpt::frameworks {
namespace {

using Layers = std::vector<int64_t>;

TEST(PipelineLayout, RepetitionsAreExpanded) {
  // Those of Megatron-LM's own functional tests.
  EXPECT_EQ(decoder_layers_of_stages("Et*2|(tt|)*5t|tmL"), (Layers{2, 2, 2, 2, 2, 2, 1, 1}));
  EXPECT_EQ(decoder_layers_of_stages("Et*3|(tt|)*6mL"), (Layers{3, 2, 2, 2, 2, 2, 2, 0}));
  EXPECT_EQ(decoder_layers_of_stages("Et*7|t*7mL"), (Layers{7, 7}));
  EXPECT_EQ(decoder_layers_of_stages("Ettt|tt|L"), (Layers{3, 2, 0}));
  EXPECT_EQ(decoder_layers_of_stages("E, t*2 | ((t|)*2t|)*2 L"), (Layers{2, 1, 1, 1, 1, 1, 1, 0}));
  EXPECT_EQ(decoder_layers_of_stages("EtL"), Layers{1});
}

TEST(PipelineLayout, WhatIsMalformedOrHugeIsNothing) {
  for (const char* wrong : {"Et*", "Et*x|L", "E(tt|L", "Ett)|L", "Ex|L", "Et*9999999999999999999|L",
                            "Et*-2|L", "E(t*4000|)*4000L", "*3", "Et*2", "t*2L"})
    EXPECT_EQ(decoder_layers_of_stages(wrong), std::nullopt) << wrong;
}

}  // namespace
}  // namespace mpt::frameworks
