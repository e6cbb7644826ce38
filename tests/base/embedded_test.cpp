// SPDX-License-Identifier: Apache-2.0
#include "base/embedded.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/threads.h"

namespace mpt {
namespace {

TEST(Embedded, FindsAFileByItsWholeName) {
  const EmbeddedFiles files{{"a/x.json", "1"}, {"b/x.json", "2"}};
  EXPECT_EQ(embedded_text(files, "b/x.json"), "2");
  EXPECT_EQ(embedded_text(files, "x.json"), std::nullopt);
}

TEST(Embedded, ReadsOnceWhoeverAsksAndKeepsThePlace) {
  ReadOnce<std::string> values;
  std::atomic<int> reads{0};
  const auto read = [&](const std::string& name) -> std::optional<std::string> {
    ++reads;
    return name == "none" ? std::nullopt : std::optional(name + "!");
  };
  std::vector<const std::string*> found(8);
  in_threads(found.size(), [&](size_t i) { found[i] = values.find(i % 2 == 0 ? "a" : "b", read); });
  EXPECT_EQ(reads, 2);
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(*found[i], i % 2 == 0 ? "a!" : "b!");
    EXPECT_EQ(found[i], found[i % 2]);
  }
  EXPECT_EQ(values.find("none", read), nullptr);
}

}  // namespace
}  // namespace mpt
