// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/framework_values.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "frameworks/framework.h"

namespace mpt::planner {
namespace {

TEST(FrameworkValues, PublishedRunsHaveNamesOfTheirOwn) {
  const std::vector<std::string> names = names_of_published_frameworks();
  EXPECT_EQ(names.size(), 9u);
  for (const std::string& name : names) {
    EXPECT_EQ(values_of_framework(name, "test").framework, name);
    const frameworks::Framework* product = frameworks::find_framework(name);
    EXPECT_TRUE(product == nullptr || product->name != name) << name << " is a product, too";
  }
  const Execution deepspeed = values_of_framework("megatron-deepspeed", "test");
  EXPECT_EQ(deepspeed.gradient_bytes, 2);
}

// "megatron-lm" is Megatron-LM before 2023 in records, and what people call megatron-core elsewhere.
TEST(FrameworkValues, ComeBeforeAliasesOfProducts) {
  EXPECT_EQ(values_of_framework("megatron-lm", "test").attention, AttentionKernel::unfused);
  EXPECT_EQ(frameworks::load_framework("megatron-lm", "test").framework, "megatron-core");
}

TEST(FrameworkValues, ProductsGoByNameOrAlias) {
  for (const char* name : {"nemo", "megatron-bridge"})
    EXPECT_EQ(values_of_framework(name, "test"), frameworks::load_framework("megatron-bridge", "test"));
  EXPECT_THROW(values_of_framework("no-such", "test"), UserError);
}

}  // namespace
}  // namespace mpt::planner
