// SPDX-License-Identifier: Apache-2.0

// Collectives that a user timed on several hosts: they speak for the level that they crossed, and no other.

#include "planner/cost/kernel_parts.h"

#include <gtest/gtest.h>

#include "planner/cost/cost_source.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

using models::CollectiveKind;
using profiler::KernelProfile;
using profiler::KernelTables;

constexpr int64_t kMessage = 256 << 20;

// Each time is `slower` times the formula's of ranks that have their hosts for themselves.
KernelTables timed(const char* operation, CollectiveKind kind, int64_t ranks, int64_t hosts, double slower) {
  ClusterSpec alone = profiler::load_cluster("dgx-h100:8", std::nullopt);
  alone.levels.front().group_size = ranks / hosts;
  KernelProfile profile;
  profile.device = "h100-sxm-80gb";
  for (const int64_t bytes : {kMessage / 4, kMessage}) {
    profile.collectives.push_back(
        {operation, ranks, bytes, slower * collective_s(kind, bytes, {ranks, ranks}, alone), hosts});
  }
  return profiler::tables_of(profile);
}

class MeasuredCollectiveTest : public ::testing::Test {
 protected:
  std::optional<double> ratio(const KernelTables& own, CollectiveKind kind, const GroupPlace& group) const {
    return measured_over_formula(own, kind, kMessage, group, cluster_);
  }
  ClusterSpec cluster_ = profiler::load_cluster("dgx-h100:8", std::nullopt);
};

TEST_F(MeasuredCollectiveTest, SpeaksForItsLevelAndNoOther) {
  const KernelTables own = timed("all_reduce", CollectiveKind::all_reduce, 16, 2, 1.7);
  EXPECT_NEAR(*ratio(own, CollectiveKind::all_reduce, {16, 16}), 1.7, 1e-9);
  EXPECT_NEAR(*ratio(own, CollectiveKind::all_reduce, {64, 64}), 1.7, 1e-9) << "more ranks on the same level";
  EXPECT_NEAR(*ratio(own, CollectiveKind::all_reduce, {8, 64}), 1.7, 1e-9) << "one rank of each node";
  EXPECT_FALSE(ratio(own, CollectiveKind::all_reduce, {8, 8})) << "inside a node";
  EXPECT_FALSE(ratio(own, CollectiveKind::all_reduce, {2, 2}));
}

TEST_F(MeasuredCollectiveTest, RingsShareTheirRatioAndAnAllToAllHasItsOwn) {
  const KernelTables own = timed("all_reduce", CollectiveKind::all_reduce, 16, 2, 1.7);
  EXPECT_NEAR(*ratio(own, CollectiveKind::all_gather, {16, 16}), 1.7, 1e-9);
  EXPECT_NEAR(*ratio(own, CollectiveKind::reduce_scatter, {16, 16}), 1.7, 1e-9);
  EXPECT_FALSE(ratio(own, CollectiveKind::all_to_all, {16, 16}));
  const KernelTables exchange = timed("all_to_all", CollectiveKind::all_to_all, 16, 2, 2.5);
  EXPECT_NEAR(*ratio(exchange, CollectiveKind::all_to_all, {16, 16}), 2.5, 1e-9);
  EXPECT_FALSE(ratio(exchange, CollectiveKind::all_reduce, {16, 16}));
}

// A GPU in each of two hosts has a port for itself, as its peers of eight in a node have.
TEST_F(MeasuredCollectiveTest, OneRankOnEachHostSpeaksForTheNetwork) {
  const KernelTables own = timed("all_reduce", CollectiveKind::all_reduce, 2, 2, 1.3);
  EXPECT_NEAR(*ratio(own, CollectiveKind::all_reduce, {2, 16}), 1.3, 1e-9);
  EXPECT_FALSE(ratio(own, CollectiveKind::all_reduce, {2, 2})) << "tensor ranks of one node";
}

TEST_F(MeasuredCollectiveTest, WhatWasTimedInsideANodeSaysNothingOfTheNetwork) {
  const KernelTables own = timed("all_reduce", CollectiveKind::all_reduce, 8, 1, 3.0);
  EXPECT_FALSE(ratio(own, CollectiveKind::all_reduce, {16, 16}));
}

}  // namespace
}  // namespace mpt::planner
