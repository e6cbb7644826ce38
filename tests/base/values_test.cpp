// SPDX-License-Identifier: Apache-2.0
#include "base/values.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace mpt {
namespace {

TEST(ObjectBuilder, KeepsTheOrderAndReplacesInPlace) {
  WorkBudget budget("f", 1 << 20);
  for (const int keys : {3, 100}) {  // few are looked through, many are sorted
    ObjectBuilder object;
    for (int i = 0; i < keys; ++i) object.set(fmt::format("k{}", i), i, budget);
    object.set("k1", "new", budget);
    EXPECT_EQ(*object.find("k1"), "new");
    EXPECT_EQ(object.find("other"), nullptr);
    const Json json = object.take();
    EXPECT_EQ(json.size(), size_t(keys));
    EXPECT_EQ((++json.begin()).key(), "k1");
    EXPECT_EQ(json.rbegin()->get<int>(), keys - 1);
    EXPECT_EQ(object.take(), Json::object());
  }
}

TEST(WorkBudget, ErrorsNameTheFileAndTheBound) {
  WorkBudget budget("short.yaml", 10);
  budget.spend(160);
  try {
    budget.spend(1);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("short.yaml: reading it takes more than 160 steps"),
              std::string::npos)
        << error.what();
  }
}

TEST(WorkBudget, ACopyTakesItsValuesAndLetters) {
  WorkBudget budget("f", 1 << 20);
  budget.copy(Json{{"key", {1, "abc"}}});
  EXPECT_EQ(budget.spent(), 4 * WorkBudget::kValueSteps + 6);
}

TEST(Json, OthersReplaceMembers) {
  EXPECT_EQ(with_members(Json{{"a", 1}, {"b", 2}}, Json{{"b", 3}, {"c", 4}}, "f").dump(),
            R"({"a":1,"b":3,"c":4})");
}

}  // namespace
}  // namespace mpt
