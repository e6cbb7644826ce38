// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/collective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "planner/cost/cost_source.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

using models::CollectiveKind;

constexpr double kMiB = 1048576.0;

// The expressions that docs/collectives.md may use.
const std::map<std::string, std::function<double(double)>>& formulas() {
  static const std::map<std::string, std::function<double(double)>> table{
      {"n-1", [](double n) { return n - 1; }},
      {"2(n-1)", [](double n) { return 2 * (n - 1); }},
      {"2 ceil(log2 n)", [](double n) { return 2 * std::ceil(std::log2(n)); }},
      {"(n-1)/n", [](double n) { return (n - 1) / n; }},
      {"2(n-1)/n", [](double n) { return 2 * (n - 1) / n; }},
      {"2", [](double) { return 2.0; }},
  };
  return table;
}

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
  }
  return cells;
}

// The rows of docs/collectives.md, evaluated: the page and the code are the same statement.
TEST(Collective, CodeAndDocumentSayTheSame) {
  std::map<std::pair<std::string, std::string>, std::vector<std::string>> rows;
  std::ifstream page(std::string(MPT_SOURCE_DIR) + "/docs/collectives.md");
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| ")) continue;
    const auto cells = cells_of(line);
    if (cells.size() == 4 && formulas().contains(cells[2])) rows[{cells[0], cells[1]}] = cells;
  }
  const std::map<CollectiveKind, std::string> names{{CollectiveKind::all_reduce, "all_reduce"},
                                                    {CollectiveKind::all_gather, "all_gather"},
                                                    {CollectiveKind::reduce_scatter, "reduce_scatter"}};
  EXPECT_EQ(rows.size(), collective_algorithms().size());
  for (const CollectiveAlgorithm& algorithm : collective_algorithms()) {
    const auto row = rows.find({names.at(algorithm.kind), algorithm.name});
    ASSERT_NE(row, rows.end()) << algorithm.name;
    ASSERT_TRUE(formulas().contains(row->second[3])) << row->second[3];
    for (const int64_t n : {2, 3, 4, 5, 8, 9, 64, 1000, 16384}) {
      const CollectiveShape shape = algorithm.shape(n);
      EXPECT_EQ(double(shape.steps), formulas().at(row->second[2])(double(n))) << algorithm.name << " " << n;
      EXPECT_DOUBLE_EQ(shape.message_share, formulas().at(row->second[3])(double(n))) << algorithm.name;
    }
  }
}

ClusterSpec two_levels() {
  ClusterSpec cluster;
  cluster.devices = 64;
  cluster.levels = {{"inner", 8, 1e-6, 1e11}, {"outer", 64, 1e-5, 1e10}};
  return cluster;
}

TEST(Collective, UsesTheInnermostLevelThatHoldsEveryGroup) {
  const ClusterSpec cluster = two_levels();
  const auto gather = [&](GroupPlace group) {
    return collective_s(CollectiveKind::all_gather, 1 << 20, group, cluster);
  };
  EXPECT_DOUBLE_EQ(gather({8, 8}), 7 * 1e-6 + 7.0 / 8 * kMiB / 1e11);
  EXPECT_DOUBLE_EQ(gather({2, 8}), 1e-6 + 0.5 * kMiB / 1e11);
  EXPECT_DOUBLE_EQ(gather({8, 64}), 7 * 1e-5 + 7.0 / 8 * kMiB / 1e10) << "one member in each of eight nodes";
  EXPECT_DOUBLE_EQ(gather({3, 3}), 2 * 1e-5 + 2.0 / 3 * kMiB / (3 * 1e10))
      << "ranks 6 to 8 straddle two nodes";
  EXPECT_DOUBLE_EQ(gather({1, 1}), 0.0);
}

TEST(Collective, AGroupHasThePortsOfAllItsMembersInANode) {
  const ClusterSpec cluster = two_levels();
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, {8, 8}), 1e11);
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, {8, 64}), 1e10);
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, {16, 64}), 2e10);
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, {64, 64}), 8e10);
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, {2, 64}), 1e10);
}

TEST(Collective, SmallAllReducesTakeTheTreeAndLargeOnesTheRing) {
  const ClusterSpec cluster = two_levels();
  EXPECT_DOUBLE_EQ(collective_s(CollectiveKind::all_reduce, 16, {64, 64}, cluster),
                   12 * 1e-5 + 2.0 * 16 / 8e10);
  EXPECT_DOUBLE_EQ(collective_s(CollectiveKind::all_reduce, int64_t{1} << 32, {8, 8}, cluster),
                   14 * 1e-6 + 1.75 * 4096 * kMiB / 1e11);
}

// What leaves a node goes through each rank's own port, however many of the group are in the node.
TEST(Collective, AnAllToAllSendsEachRanksRowsThroughItsOwnPort) {
  const ClusterSpec cluster = two_levels();
  const auto all_to_all = [&](GroupPlace group) {
    return collective_s(CollectiveKind::all_to_all, 1 << 20, group, cluster);
  };
  EXPECT_DOUBLE_EQ(all_to_all({8, 8}), 7 * 1e-6 + 7.0 / 8 * kMiB / 1e11);
  EXPECT_DOUBLE_EQ(all_to_all({64, 64}), 63 * 1e-5 + 7.0 / 8 * kMiB / 1e10);
  EXPECT_DOUBLE_EQ(all_to_all({8, 64}), 7 * 1e-5 + 7.0 / 8 * kMiB / 1e10) << "one of each node";
  EXPECT_DOUBLE_EQ(all_to_all({16, 16}), 15 * 1e-5 + 0.5 * kMiB / 1e10) << "half stays in the node";
  EXPECT_DOUBLE_EQ(all_to_all({1, 1}), 0.0);
  ClusterSpec two_rails = cluster;
  two_rails.levels[1].rails = 2;
  EXPECT_DOUBLE_EQ(collective_s(CollectiveKind::all_to_all, 1 << 20, {16, 16}, two_rails),
                   15 * 1e-5 + 0.5 * kMiB / (2 * 1e10 / 8));
}

// The tables of an H100's collectives price an H800 at the rate of its own, slower links.
TEST(Collective, MeasuredTimesOfOtherLinksAreTakenToItsOwn) {
  const auto seconds = [](const char* cluster, int64_t bytes) {
    return make_device_cost(profiler::load_cluster(cluster, std::nullopt), {})
        ->collective_s(CollectiveKind::all_gather, bytes, {8, 8});
  };
  const int64_t large = int64_t{1} << 32;
  EXPECT_GT(seconds("hgx-h800:1", large), 1.8 * seconds("dgx-h100:1", large)) << "160 against 360 GB/s";
  EXPECT_NEAR(seconds("hgx-h800:1", 1024), seconds("dgx-h100:1", 1024), 1e-7);
  EXPECT_EQ(seconds("hgx-h20:1", large), seconds("dgx-h100:1", large)) << "the same links";
}

// Eight devices of which each pair has one link of a seventh of what a device has.
TEST(Collective, AFewDevicesOfAMeshHaveOnlyTheLinksAmongThem) {
  ClusterSpec plain = two_levels();
  for (LinkLevel& level : plain.levels) level.latency_s = 0.0;
  ClusterSpec mesh = plain;
  mesh.levels.front().mesh = 8;
  const int64_t bytes = int64_t{1} << 30;
  const auto slower = [&](CollectiveKind kind, GroupPlace group) {
    return collective_s(kind, bytes, group, mesh) / collective_s(kind, bytes, group, plain);
  };
  for (const auto kind :
       {CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::all_to_all}) {
    EXPECT_DOUBLE_EQ(slower(kind, {2, 2}), 7.0);
    EXPECT_DOUBLE_EQ(slower(kind, {4, 4}), 7.0 / 3);
    EXPECT_DOUBLE_EQ(slower(kind, {8, 8}), 1.0);
    EXPECT_DOUBLE_EQ(slower(kind, {8, 64}), 1.0) << "one of each node";
  }
  EXPECT_DOUBLE_EQ(message_s(bytes, 0, 1, 1, mesh) / message_s(bytes, 0, 1, 1, plain), 7.0);
  EXPECT_DOUBLE_EQ(message_s(bytes, 0, 8, 1, mesh), message_s(bytes, 0, 8, 1, plain)) << "between nodes";
}

// All ways in which the copies of a row can fall on four ranks, two in each of two nodes.
TEST(Collective, CopiesOfARowReachEachNodeAndRankOnce) {
  ClusterSpec cluster = two_levels();
  cluster.devices = 4;
  cluster.levels = {{"inner", 2, 0.0, 1.0}, {"outer", 4, 0.0, 1e-3}};
  for (const int copies : {1, 2, 3, 5}) {
    double other_nodes = 0.0, other_ranks = 0.0, ways = std::pow(4.0, copies);
    for (int way = 0; way < int(ways); ++way) {
      std::set<int> ranks, nodes;
      for (int copy = 0, rest = way; copy < copies; ++copy, rest /= 4) {
        ranks.insert(rest % 4);
        nodes.insert(rest % 4 / 2);
      }
      other_ranks += double(ranks.size() - ranks.count(0));
      other_nodes += double(nodes.size() - nodes.count(0));
    }
    const double bytes = 1000.0 * copies;  // 1000 of each copy
    EXPECT_NEAR(exchange_s(int64_t(bytes), {copies}, {4, 4}, cluster), 1000.0 * other_nodes / ways / 1e-3,
                1e-6);
    EXPECT_NEAR(exchange_s(int64_t(bytes), {copies}, {2, 2}, cluster),
                bytes * sent_once_share(2, {copies}) / 2.0, 1e-6)
        << "in a node of two, as a plain exchange of what is left";
    EXPECT_NEAR(sent_once_share(4, {copies}) * 0.75 * copies, other_ranks / ways, 1e-12);
  }
}

// All pairs of groups, and all ways in which three copies can fall on the places of a pair; the ranks hold
// parts of groups, whole groups or several.
TEST(Collective, CopiesOfARowStayInItsGroups) {
  constexpr int kGroups = 4, kChosen = 2, kCopies = 3, kPlaces = 16, kPlacesOfGroup = kPlaces / kGroups;
  for (const int ranks : {2, 4, 8}) {
    double other_ranks = 0.0, ways = 0.0;
    for (int a = 0; a < kGroups; ++a) {
      for (int b = 0; b < a; ++b) {
        for (int way = 0; way < 8 * 8 * 8; ++way) {
          std::set<int> reached;
          for (int copy = 0, rest = way; copy < kCopies; ++copy, rest /= 8) {
            const int place = rest % 8, group = place < kPlacesOfGroup ? a : b;
            reached.insert((group * kPlacesOfGroup + place % kPlacesOfGroup) * ranks / kPlaces);
          }
          other_ranks += double(reached.size() - reached.count(0));
          ways += 1.0;
        }
      }
    }
    const double sent = sent_once_share(ranks, {kCopies, kGroups, kChosen}) * kCopies * (ranks - 1) / ranks;
    EXPECT_NEAR(sent, other_ranks / ways, 1e-12) << ranks << " ranks";
    EXPECT_NEAR(sent_once_share(ranks, {kCopies, kGroups, kGroups}), sent_once_share(ranks, {kCopies}), 1e-12)
        << "all groups: no limit";
  }
}

TEST(Message, TakesTheLevelBetweenItsRanks) {
  const ClusterSpec cluster = two_levels();
  EXPECT_DOUBLE_EQ(message_s(1 << 20, 0, 7, 1, cluster), 1e-6 + kMiB / 1e11);
  EXPECT_DOUBLE_EQ(message_s(1 << 20, 7, 8, 1, cluster), 1e-5 + kMiB / 1e10);
}

}  // namespace
}  // namespace mpt::planner
