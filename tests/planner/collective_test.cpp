// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/collective.h"

#include <gtest/gtest.h>

#include <fstream>

namespace mpt::planner {
namespace {

using models::CollectiveKind;

ClusterSpec two_levels() {
  ClusterSpec cluster;
  cluster.levels = {{"inner", 8, 1e-6, 1e11}, {"outer", 64, 1e-5, 1e10}};
  return cluster;
}

// The rows of docs/collectives.md, evaluated: the page and the code are the same statement.
TEST(Collective, CodeAndDocumentSayTheSame) {
  std::ifstream page(std::string(MPT_SOURCE_DIR) + "/docs/collectives.md");
  const std::pair<const char*, CollectiveKind> names[] = {
      {"| all_reduce |", CollectiveKind::all_reduce},
      {"| all_gather |", CollectiveKind::all_gather},
      {"| reduce_scatter |", CollectiveKind::reduce_scatter},
      {"| all_to_all |", CollectiveKind::all_to_all}};
  int rows = 0;
  for (std::string line; std::getline(page, line);) {
    for (const auto& [name, kind] : names) {
      if (!line.starts_with(name)) continue;
      ++rows;
      const bool twice = line.find("| 2(n-1) | 2(n-1)/n |") != std::string::npos;
      ASSERT_TRUE(twice || line.find("| n-1 | (n-1)/n |") != std::string::npos) << line;
      for (const int64_t n : {2, 3, 8, 1000}) {
        EXPECT_EQ(collective_shape(kind, n).steps, (twice ? 2 : 1) * (n - 1)) << line;
        EXPECT_DOUBLE_EQ(collective_shape(kind, n).message_share,
                         (twice ? 2.0 : 1.0) * double(n - 1) / double(n))
            << line;
      }
    }
  }
  EXPECT_EQ(rows, 4);
}

TEST(Collective, UsesTheInnermostLevelThatHoldsTheGroup) {
  const ClusterSpec cluster = two_levels();
  const auto time = [&](int64_t ranks, int64_t stride) {
    return ring_collective_s(CollectiveKind::all_reduce, 1 << 20, ranks, stride, cluster);
  };
  EXPECT_DOUBLE_EQ(time(8, 1), 14 * 1e-6 + 1.75 * (1 << 20) / 1e11);
  EXPECT_DOUBLE_EQ(time(8, 8), 14 * 1e-5 + 1.75 * (1 << 20) / 1e10);  // one in each of eight nodes
  EXPECT_DOUBLE_EQ(time(1, 1), 0.0);
}

}  // namespace
}  // namespace mpt::planner
