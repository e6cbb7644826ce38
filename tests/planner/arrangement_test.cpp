// SPDX-License-Identifier: Apache-2.0

// Mixed clusters: the search against brute force, and where stages come to lie.

#include "planner/search/arrangement.h"
#include "planner/memory/memory_model.h"

#include <gtest/gtest.h>

#include "base/quantity.h"
#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/api.h"
#include "planner/cost/collective.h"
#include "planner/search/layout_resolver.h"
#include "profiler/hardware/catalog.h"
#include "tests/planner/bounds_rise.h"
#include "tests/support/random_problem.h"

namespace mpt::planner {
namespace {

std::vector<int64_t> limits_of(const ClusterSpec& cluster, const Execution& execution) {
  std::vector<int64_t> limits;
  for (const DeviceGroup& group : cluster.groups) limits.push_back(tensor_bytes(group.device, execution));
  return limits;
}

// A small random problem on two or three groups of devices of different speed and memory.
struct MixedProblem : test::RandomProblem {
  explicit MixedProblem(uint32_t seed) : RandomProblem(seed) {
    std::vector<ClusterSpec> parts;
    const int64_t groups = pick({2, 2, 3});
    for (int64_t g = 0; g < groups; ++g) {
      ClusterSpec part = problem.cluster;
      part.name = std::string(1, char('a' + g));
      part.device.kind = DeviceKind::gpu;
      part.device.name = part.name;
      part.device.memory_bytes = framework_limit() + pick({1, 2, 4, 1000}) * 300'000;
      for (double* rate : {&part.device.fp32_flop_per_s, &part.device.bf16_flop_per_s,
                           &part.device.memory_bandwidth_bytes_per_s})
        *rate *= double(pick({1, 2, 3}));
      part.devices = pick({1, 2, 4});
      part.devices_per_node = 2;
      part.levels = {{"inner", 2, 1e-6, 1e9 * double(pick({1, 10}))}, {"outer", part.devices, 1e-5, 1e8}};
      parts.push_back(part);
    }
    problem.cluster =
        join_clusters("mixed", parts, {"link", 1, 1e-4, 1e7 * double(pick({1, 10, 100})), 1, 1.0});
    problem.ranks = problem.cluster.devices;
    problem.execution.allocator.counts_each_buffer =
        false;  // NCCL's buffers of mpt-run are more than these GPUs have
    pools = std::make_unique<Pools>(problem.cluster, problem.execution,
                                    limits_of(problem.cluster, problem.execution));
    pools->set(problem);
  }
  // What Pools takes off a GPU's memory for driver and libraries.
  static int64_t framework_limit() {
    DeviceSpec gpu;
    gpu.kind = DeviceKind::gpu;
    return framework_bytes(gpu);
  }
  std::unique_ptr<Pools> pools;
};

TEST(Arrangement, TheSearchFindsWhatBruteForceFinds) {
  int with_answer = 0, uneven = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    MixedProblem r(seed);
    double best = INFINITY;
    for (const Layout& layout : enumerate_layouts(r.problem)) {
      const Estimate e = estimate(r.problem, layout);
      const Evaluation evaluation = evaluate(r.problem, e);
      if (!evaluation.rejection) best = std::min(best, evaluation.step_time_s);
    }
    const SearchResult result = search(r.problem, 1);
    EXPECT_TRUE(result.certificate.optimal);
    ASSERT_EQ(result.best.empty(), best == INFINITY) << seed;
    if (result.best.empty()) continue;
    ++with_answer;
    EXPECT_EQ(result.best.front().evaluation.step_time_s, best) << seed;
    const std::vector<int64_t> limits = limits_of_ranks(r.problem, result.best.front().estimate.layout);
    for (const RankMemory& m : result.best.front().evaluation.memory)
      EXPECT_LE(m.peak_bytes, limits[size_t(m.rank)]) << seed;
    const auto& counts = result.best.front().estimate.layout.layers_per_stage;
    uneven += counts.front() != counts.back() ? 1 : 0;
  }
  EXPECT_GT(with_answer, 60);
  EXPECT_GT(uneven, 5) << "stages on different devices differ";
}

TEST(Arrangement, NoInnerBoundIsAboveItsLeaves) {
  int64_t leaves = 0;
  for (uint32_t seed = 900; seed < 930; ++seed) {
    MixedProblem r(seed);
    SCOPED_TRACE(seed);
    r.problem.memory_limit_bytes = 64 * kGiB;
    leaves += test::expect_bounds_rise(r.problem).leaves;
  }
  EXPECT_GT(leaves, 1000);
  // mpt-run's scalar attention takes as long on both devices, products do not.
  PlanRequest request;
  request.model.name = "gemma3-12b";
  request.cluster.name = "dgx-a100:2+dgx-h100:2@100Gb/s";
  request.framework = frameworks::own_runtime().name;
  request.global_batch = 256;
  request.sequence = 8192;
  request.bounds.tensor = request.bounds.context = request.bounds.pipeline = {2};
  request.bounds.micro_batch = {1};
  EXPECT_GT(test::expect_bounds_rise(resolve(request)->problem).leaves, 1000);
}

// mpt-run's buffers of NCCL, and so the limits of ranks, depend on all of a layout. Its stages do not.
TEST(Arrangement, LayoutsBelowANodeOfDegreesHaveItsStages) {
  PlanRequest request;
  request.model.name = "olmo2-32b";
  request.cluster.name = "dgx-b200:1+dgx-h100:1@400Gb/s";
  request.framework = frameworks::own_runtime().name;
  request.global_batch = 64;
  request.bounds.micro_batch = {1};
  const auto resolved = resolve(request);
  LayoutResolver resolver(resolved->problem);
  int64_t n = 0, compared = 0;
  visit_degrees(resolved->problem, [&](const Layout& degrees, const std::vector<Sharding>& shardings) {
    for (const Sharding& sharding : shardings) {
      const Layout node = with_sharding(degrees, sharding);
      for (const Leaf& leaf : leaves_of(resolved->problem, node)) {
        const StageKinds* const stages = resolver.stages(degrees, leaf);
        if (n++ % 7 != 0 || stages == nullptr) continue;
        const Layout layout = resolver.layout(node, leaf);
        EXPECT_EQ(layout.layers_per_stage, resolver.layout(degrees, leaf).layers_per_stage);
        EXPECT_EQ(resolver.stages(layout, leaf), stages) << layout_name(layout);
        ++compared;
      }
    }
  });
  EXPECT_GT(compared, 1000);
}

TEST(Arrangement, TheBestOfAllSelectionsAndOrdersIsTaken) {
  int not_as_given = 0;
  for (uint32_t seed = 500; seed < 540; ++seed) {
    MixedProblem r(seed);
    const auto arranged = search_arrangements(r.problem, 1);
    const SearchResult as_given = search(r.problem, 1);
    const size_t groups = r.problem.cluster.groups.size();
    EXPECT_EQ(arranged->notes.size(), groups == 2 ? 4u : 15u);
    EXPECT_TRUE(arranged->result.certificate.optimal);
    EXPECT_GE(arranged->result.certificate.layouts, as_given.certificate.layouts);
    if (as_given.best.empty()) continue;
    ASSERT_FALSE(arranged->result.best.empty());
    const double best = arranged->result.best.front().evaluation.step_time_s;
    EXPECT_LE(best, as_given.best.front().evaluation.step_time_s);
    not_as_given += best < as_given.best.front().evaluation.step_time_s ? 1 : 0;
  }
  EXPECT_GT(not_as_given, 5);
}

TEST(Arrangement, GroupsOfEqualDevicesAndAFastLinkAreLikeOneCluster) {
  SearchProblem one;
  one.model = models::load_model("llama3-8b");
  one.workload = {64, 4096};
  one.precision = Precision::bf16;
  one.cluster = profiler::load_cluster("dgx-h100:2", std::nullopt);
  one.ranks = one.cluster.devices;
  one.memory_limit_bytes = tensor_bytes(one.cluster.device, {});
  const auto source = make_device_cost(one.cluster, {});
  one.cost = source.get();
  SearchProblem two = one;
  two.cluster = profiler::load_cluster("dgx-h100:1+dgx-h100:1", std::nullopt);
  const Pools pools(two.cluster, {}, limits_of(two.cluster, {}));
  pools.set(two);
  // Joined by the same network that connects two nodes.
  EXPECT_DOUBLE_EQ(search(two, 1).best.front().evaluation.step_time_s,
                   search(one, 1).best.front().evaluation.step_time_s);
}

TEST(Arrangement, FasterDevicesGetMoreLayersAndSmallOnesFewer) {
  const ClusterSpec cluster = profiler::load_cluster("dgx-a100:1+dgx-h100:1@5GB/s", std::nullopt);
  SearchProblem problem;
  problem.model = models::load_model("llama3-8b");
  problem.workload = {64, 4096};
  problem.precision = Precision::bf16;
  problem.cluster = cluster;
  problem.ranks = cluster.devices;
  problem.bounds.pipeline = {2};
  problem.bounds.chunks = {1};
  problem.bounds.orders = {RankOrder::pipeline_outermost};
  const Pools pools(cluster, {}, limits_of(cluster, {}));
  pools.set(problem);
  const auto best = search(problem, 1).best;
  ASSERT_FALSE(best.empty());
  const std::vector<int64_t>& layers = best.front().estimate.layout.layers_per_stage;
  EXPECT_LT(2 * layers.front(), layers.back()) << "an H100 is about three times as fast as an A100";
}

// Launchers number ranks by the name, and whoever prices the plan again names the cluster by it.
TEST(Arrangement, TheClusterIsNamedInTheOrderOfItsRanks) {
  SearchProblem problem;
  problem.model = models::load_model("llama3-8b");
  problem.workload = {64, 4096};
  problem.precision = Precision::bf16;
  problem.cluster = profiler::load_cluster("dgx-a100:2+dgx-h100:2@25GB/s@1ms", std::nullopt);
  problem.ranks = problem.cluster.devices;
  const Pools pools(problem.cluster, {}, limits_of(problem.cluster, {}));
  pools.set(problem);
  const auto found = search_arrangements(problem, 1, {});
  const ClusterSpec& cluster = found->problem.cluster;
  ASSERT_TRUE(cluster.mixed());
  EXPECT_EQ(cluster.name, cluster.groups[0].name + "+" + cluster.groups[1].name + "@25GB/s@1ms");
  EXPECT_EQ(profiler::load_cluster(cluster.name, std::nullopt), cluster);
  EXPECT_EQ(cluster.groups[0].name, "dgx-h100:2") << "not the order that was given";
}

TEST(Arrangement, PricesOfAllKindsOfDevicesAreNamed) {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.global_batch = 64;
  r.cluster.name = "dgx-a100:1+dgx-h100:1";
  r.bounds.pipeline = {2};
  const Plan priced = plan(r);
  EXPECT_NE(priced.cost.machine.find("a100-sxm-80gb"), std::string::npos) << priced.cost.machine;
  EXPECT_NE(priced.cost.machine.find("h100-sxm-80gb"), std::string::npos) << priced.cost.machine;
}

TEST(Arrangement, GroupsThatAreLeftIdleAreNamed) {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.global_batch = 64;
  r.bounds.tensor = {8};
  const auto notes_on = [&r](const char* cluster) {
    r.cluster.name = cluster;
    std::string text;
    for (const std::string& note : plan(r).notes) text += note + "\n";
    return text;
  };
  const std::string slow = notes_on("dgx-h100:1+dgx-a100:1@0.001GB/s");
  EXPECT_NE(slow.find("dgx-a100:1 is left idle: with all GPUs the fastest step takes "), std::string::npos)
      << slow;
  EXPECT_EQ(notes_on("dgx-h100:1+dgx-h100:1").find("left idle"), std::string::npos);
}

TEST(Link, RailsAndOversubscriptionLimitWhatABlockSendsTogether) {
  ClusterSpec cluster = profiler::load_cluster("dgx-h100:4", std::nullopt);
  const double full = message_s(kGiB, 0, 8, 1, cluster), all = message_s(kGiB, 0, 8, 8, cluster);
  EXPECT_DOUBLE_EQ(full, all) << "a port for every device";
  cluster.levels.back().rails = 2;
  EXPECT_DOUBLE_EQ(message_s(kGiB, 0, 8, 2, cluster), full);
  EXPECT_NEAR(message_s(kGiB, 0, 8, 8, cluster), 4 * full, 4 * cluster.levels.back().latency_s);
  const GroupPlace data{4, 32};
  const double shared = group_bandwidth_bytes_per_s(cluster, data);
  EXPECT_DOUBLE_EQ(shared, cluster.levels.back().bandwidth_bytes_per_s * 2 / 8);
  cluster.levels.back().rails = 0;
  cluster.levels.back().oversubscription = 4.0;
  EXPECT_DOUBLE_EQ(group_bandwidth_bytes_per_s(cluster, data), shared);
  EXPECT_DOUBLE_EQ(message_s(kGiB, 0, 8, 2, cluster), full) << "few senders find the lines free";
}

TEST(Link, BetweenGroupsIsTheJoiningOneAndWithinThemTheirOwn) {
  const ClusterSpec cluster = profiler::load_cluster("dgx-a100:1+dgx-h100:2@5GB/s@2ms", std::nullopt);
  EXPECT_EQ(link_of_ranks(cluster, 0, 7).level->name, "nvlink");
  EXPECT_EQ(link_of_ranks(cluster, 7, 8).level->name, "link between clusters");
  EXPECT_EQ(link_of_ranks(cluster, 8, 15).level->name, "nvlink");
  EXPECT_EQ(link_of_ranks(cluster, 15, 16).level->name, "infiniband");
  // Four pipelines share the link's 5 GB/s.
  EXPECT_NEAR(message_s(1'000'000'000, 0, 8, 4, cluster), 0.002 + 4.0 / 5.0, 1e-9);
  EXPECT_EQ(level_of_blocks(group_view(cluster, 0), 8), 0u);
  EXPECT_EQ(level_of_blocks(group_view(cluster, 1), 16), 2u) << "blocks of 16 cross the edge at 8";
}

// A slow link between sites makes the bounds of most layouts weak.
TEST(Arrangement, FewLayoutsOfTwoSitesAreSimulated) {
  PlanRequest request;
  request.model.name = "llama3-8b";
  request.cluster.name = "dgx-h100:2+dgx-h100:2@1Gb/s@5ms";
  request.global_batch = 128;
  const SearchCertificate found = plan(request).search;
  EXPECT_TRUE(found.optimal);
  EXPECT_LT(found.simulated, 5'000) << "of " << found.layouts;
}

}  // namespace
}  // namespace mpt::planner
