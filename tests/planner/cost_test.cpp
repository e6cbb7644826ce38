// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>

#include "models/footprint.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/operator_pieces.h"
#include "planner/cost/step_pricer.h"
#include "profiler/hardware/catalog.h"
#include "tests/planner/priced_layouts.h"
#include "tests/support/make_plan.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;

profiler::Profile sample_profile(const ModelSpec& model) {
  profiler::Profile profile;
  profile.model = model;
  profile.sequence = 16;
  profile.matmul_flop_per_s = 1e10;
  profile.memory_bandwidth_bytes_per_s = 1e10;
  profile.rate_by_active_ranks = {1.0, 0.9};
  for (const auto& [piece, name] : EnumNames<Piece>::table()) {
    for (const auto& [phase, phase_name] : EnumNames<Phase>::table()) {
      for (const int64_t tensor : {1, 2}) {
        for (const auto& [micro_batch, seconds] : {std::pair<int64_t, double>{1, 2.0}, {2, 3.0}, {8, 8.0}}) {
          for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
            profile.pieces.push_back({piece, phase, micro_batch, tensor, recompute,
                                      seconds / double(tensor) * (recompute == Recompute::full ? 1.5 : 1),
                                      0});
          }
        }
      }
    }
  }
  for (const int64_t bytes : {1024, 1048576}) {
    profile.transport.push_back(
        {profiler::TransportOperation::all_reduce, 2, bytes, double(bytes) / 1e9 + 1e-5, 0});
    profile.transport.push_back(
        {profiler::TransportOperation::send_receive, 2, bytes, double(bytes) / 2e9 + 1e-6, 0});
  }
  return profile;
}

ClusterSpec node_of(ClusterSpec cluster, int64_t devices) {
  cluster.devices = cluster.devices_per_node = cluster.levels.front().group_size = devices;
  return cluster;
}

struct Fixture {
  ModelSpec model = test::little_gpt();
  profiler::Profile profile = sample_profile(model);
  ClusterSpec cluster = node_of(test::make_plan({model}).cluster, 8);
  Workload workload{8, 16};
  std::unique_ptr<CostSource> source = make_profile_cost(profile, model, workload, Precision::fp32, cluster);

  models::LayerProgram layer_of(const Layout& layout) const {
    return models::layer_program(model, 0, layout, workload.sequence);
  }
  double layer(int64_t micro_batch, int64_t tensor = 1, Recompute recompute = Recompute::none) const {
    Layout layout;
    layout.micro_batch = micro_batch;
    layout.tensor = tensor;
    layout.recompute = recompute;
    return source->piece_s(Piece::layer, Phase::backward, layout, layer_of(layout));
  }
};

TEST(ProfileCost, IsExactAtMeasuredPoints) {
  const Fixture f;
  EXPECT_DOUBLE_EQ(f.layer(1), 2.0);
  EXPECT_DOUBLE_EQ(f.layer(8), 8.0);
  EXPECT_DOUBLE_EQ(f.layer(2, 2), 1.5);
  EXPECT_DOUBLE_EQ(f.layer(2, 1, Recompute::full), 4.5);
  EXPECT_DOUBLE_EQ(f.source->transfer_s(1024, 0, 1, 1), 1024 / 2e9 + 1e-6);
}

TEST(ProfileCost, InterpolatesInRateAndKeepsTheNearestBeyond) {
  const Fixture f;
  // Rates: 2/3 at 2 and 1 at 8 sequences per second; at 4 a third of the way.
  EXPECT_NEAR(f.layer(4), 4 / (2.0 / 3 + (1 - 2.0 / 3) / 3), 1e-12);
  EXPECT_DOUBLE_EQ(f.layer(16), 16.0);
  EXPECT_DOUBLE_EQ(f.layer(8, 4), 2.0) << "a width that was not measured scales from the nearest that was";
}

TEST(ProfileCost, SmallMessagesCostTheLatency) {
  const Fixture f;
  EXPECT_DOUBLE_EQ(f.source->transfer_s(1, 0, 1, 1), f.source->transfer_s(1024, 0, 1, 1));
  EXPECT_GT(f.source->transfer_s(1 << 24, 0, 1, 1), 8 * f.source->transfer_s(1 << 20, 0, 1, 1));
}

// The head was timed without them.
TEST(ProfileCost, NextTokenModulesCostWhatTheirOperatorsSayBesideTheHead) {
  Fixture f;
  f.model.next_token_layers = 1;
  f.profile = sample_profile(f.model);
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  const Layout layout;
  const auto head_s = [&](const models::LayerProgram& program) {
    return source->piece_s(Piece::head, Phase::forward, layout, program);
  };
  const double alone = head_s(models::head_program(f.model, layout, f.workload.sequence));
  EXPECT_DOUBLE_EQ(alone, 2.0) << "as measured";
  EXPECT_GT(head_s(models::last_stage_program(f.model, layout, f.workload.sequence)), 2 * alone);
}

TEST(ProfileCost, AnotherModelIsPricedByItsOperators) {
  Fixture f;
  f.model.hidden = 64;
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  EXPECT_EQ(source->origin().source, "profile (operators)");
  Layout layout;
  EXPECT_GT(source->piece_s(Piece::layer, Phase::backward, layout, f.layer_of(layout)),
            source->piece_s(Piece::layer, Phase::forward, layout, f.layer_of(layout)));
}

namespace {
StepCost cost_of(const ModelSpec& model, const Layout& layout, const Workload& workload,
                 const CostSource& source) {
  models::PiecePrograms programs(model, layout, workload.sequence);
  const std::vector<PieceCosts> pieces{PieceCosts(programs, source)};
  const std::vector<const CostSource*> sources{&source};
  return step_cost({pieces, sources, std::vector<uint32_t>(size_t(layout.pipeline), 1)},
                   models::StagePieces(model, layout, workload.sequence), model, layout,
                   round_robin_placement(int(layout.pipeline), int(layout.chunks)));
}
}  // namespace

TEST(StepCost, StagesAddUpTheirPieces) {
  const Fixture f;
  Layout layout;
  layout.pipeline = 2;
  layout.layers_per_stage = {1, 3};
  const StepCost cost = cost_of(f.model, layout, f.workload, *f.source);
  EXPECT_DOUBLE_EQ(cost.stages[0].of(InstructionKind::forward), 2.0 + 2.0);       // embedding and one layer
  EXPECT_DOUBLE_EQ(cost.stages[1].of(InstructionKind::backward), 3 * 2.0 + 2.0);  // three layers and the head
}

namespace {
// Work and messages in proportion to their sizes, and nothing lost where they run at once.
class PlainCost final : public CostSource {
 public:
  explicit PlainCost(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}
  double piece_s(Piece piece, Phase phase, const Layout& layout,
                 const models::LayerProgram& program) const override {
    return sum_of_operators(program, piece, phase, layout.recompute,
                            [this](const models::Operator& op, Phase p) { return operator_s(op.shape, p); });
  }
  double operator_s(const models::OperatorShape& s, Phase phase) const override {
    return 1e-9 * (phase == Phase::forward ? models::forward_flop(s) : models::input_gradient_flop(s));
  }
  double collective_s(models::CollectiveKind, int64_t bytes, const GroupPlace&) const override {
    return double(bytes) / bytes_per_s_;
  }
  double pipelined_overlap_share() const override { return 0.0; }
  double transfer_s(int64_t, int64_t, int64_t, int64_t) const override { return 0.0; }
  double optimizer_s(int64_t) const override { return 0.0; }
  double offloaded_optimizer_s(int64_t) const override { return 0.0; }
  double gradient_norm_s(int64_t) const override { return 0.0; }
  double dispatch_s() const override { return 0.0; }
  std::vector<double> rate_by_active_ranks() const override { return {}; }
  CostOrigin origin() const override { return {}; }

 private:
  double bytes_per_s_;
};

// A product and its collective in parts, event by event: how much longer it takes than the product alone.
double shown_s(const models::Collective& c, double compute_s, double collective_s, int64_t ranks) {
  const double part_s = compute_s / double(ranks);
  double computed = 0.0, sent = 0.0;
  switch (c.kind) {
    case models::CollectiveKind::all_reduce:  // of the part that was computed
      for (int64_t p = 0; p < ranks; ++p) {
        computed += part_s;
        sent = std::max(sent, computed) + collective_s / double(ranks);
      }
      break;
    case models::CollectiveKind::reduce_scatter:  // the own part stays
      for (int64_t p = 0; p + 1 < ranks; ++p) {
        computed += part_s;
        sent = std::max(sent, computed) + collective_s / double(ranks - 1);
      }
      computed += part_s;
      break;
    default:  // the own part is there
      computed = part_s;
      for (int64_t p = 0; p + 1 < ranks; ++p) {
        sent += collective_s / double(ranks - 1);
        computed = std::max(sent, computed) + part_s;
      }
  }
  return std::max(sent, computed) - compute_s;
}
}  // namespace

TEST(StepCost, TensorCollectivesInPartsShowWhatTheirProductDoesNotHide) {
  const ModelSpec model = test::little_gpt(1);
  Layout layout;
  layout.layers_per_stage = {1};
  layout.overlap_tensor = true;
  for (const int64_t tensor : {2, 4}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const double bytes_per_s : {1e6, 1e8, 1e9}) {
        layout.tensor = tensor;
        layout.sequence_parallel = sequence_parallel;
        const PlainCost source(bytes_per_s);
        double expected = 0.0;
        for (const models::Operator& op : models::layer_program(model, 0, layout, 16).operators) {
          for (const models::Collective& c : op.forward_collectives)
            expected += shown_s(c, source.operator_s(op.shape, Phase::forward),
                                source.collective_s(c.kind, c.bytes, {}), tensor);
        }
        StageKind one;
        one.layers = one.recomputed = models::KindCounts(1);
        one.layers[0] = 1;
        models::PiecePrograms programs(model, layout, 16);
        const PieceCost cost = PieceCosts(programs, source).stage(one, Recompute::none);
        EXPECT_TRUE(bytes_per_s > 1e7 || expected > 0.0) << "a slow link shows";
        EXPECT_NEAR(cost.forward_collective.total(), expected, 1e-9 * expected + 1e-15)
            << "tp" << tensor << " sp " << sequence_parallel << " at " << bytes_per_s;
        // A sum beside the weight gradient shows no more than one that has the input gradient alone.
        EXPECT_LE(cost.backward_collective.total(), cost.input_gradient_collective.total());
      }
    }
  }
}

TEST(StepCost, SumsBesideTheWeightGradientShowWhatItsProductDoesNotHide) {
  const ModelSpec model = test::little_gpt(1);
  Layout layout;
  layout.layers_per_stage = {1};
  layout.tensor = 2;
  StageKind one;
  one.layers = one.recomputed = models::KindCounts(1);
  one.layers[0] = 1;
  for (const bool beside : {false, true}) {
    layout.execution.sums_beside_weight_gradient = beside;
    for (const double bytes_per_s : {1e6, 1e8, 1e9}) {
      const PlainCost source(bytes_per_s);
      double alone = 0.0, whole = 0.0;
      for (const models::Operator& op : models::layer_program(model, 0, layout, 16).operators) {
        for (const models::Collective& c : op.backward_collectives) {
          const double sum_s = source.collective_s(c.kind, c.bytes, {});
          alone += sum_s;
          whole += beside ? exposed_s(sum_s, source.operator_s(op.shape, Phase::weight_gradient),
                                      source.constants().collective_overlap_share)
                          : sum_s;
        }
      }
      models::PiecePrograms programs(model, layout, 16);
      const PieceCost cost = PieceCosts(programs, source).stage(one, Recompute::none);
      EXPECT_NEAR(cost.input_gradient_collective.total(), alone, 1e-9 * alone);
      EXPECT_NEAR(cost.backward_collective.total(), whole, 1e-9 * whole);
      EXPECT_EQ(whole < alone, beside) << bytes_per_s;
    }
  }
}

// With ZeRO 1 gradients are scattered; where a framework sums them whole, as without it.
TEST(StepCost, GradientsSummedWholeCostTheAllReduce) {
  Layout data;
  data.data = 16;
  data.zero = 1;
  data.shard = 16;
  test::Priced p("llama3-8b", "dgx-a100:2", data, "aleph-alpha-scaling");
  const auto step_s = [&](bool whole) {
    p.problem.execution.sums_whole_gradients = p.layout.execution.sums_whole_gradients = whole;
    return evaluate_regardless(p.problem, estimate(p.problem, p.layout)).step_time_s;
  };
  const models::StagePieces pieces(p.problem.model, p.layout, 4096);
  const int64_t bytes = 4 * pieces.parameters({0, p.problem.model.layers.count(), true, true}).total();
  const auto sum_s = [&](models::CollectiveKind kind) {
    return p.source->collective_s(kind, bytes, data_group(p.layout));
  };
  const double more =
      sum_s(models::CollectiveKind::all_reduce) - sum_s(models::CollectiveKind::reduce_scatter);
  EXPECT_GT(more, 0.0);
  EXPECT_NEAR(step_s(true) - step_s(false), more, 1e-3 * more);
}

TEST(StepCost, GathersOfShardedWeightsReachAShareOfTheNetworksRate) {
  const auto traffic = [&](int64_t nodes, double rate) {
    Layout data;
    data.data = data.shard = 8 * nodes;
    data.zero = 3;
    data.execution.sharded_network_rate = rate;
    test::Priced p("llama3-8b", "dgx-a100:" + std::to_string(nodes), data, "fsdp");
    p.problem.execution.sharded_network_rate = p.layout.execution.sharded_network_rate = rate;
    const auto source = make_device_cost(p.problem.cluster, p.problem.execution);
    return sharded_traffic(p.layout, models::ParameterShare{int64_t{1} << 30, 0}, *source);
  };
  const ShardedTraffic all = traffic(2, 1.0), half = traffic(2, 0.5);
  EXPECT_NEAR(half.gather_s, 2.0 * all.gather_s, 1e-9);
  EXPECT_NEAR(half.scatter_s, 2.0 * all.scatter_s, 1e-9);
  EXPECT_EQ(traffic(1, 0.5).gather_s, traffic(1, 1.0).gather_s) << "within a node";
}

// A layer's tokens travel beside another micro-batch's pass, unless the layer computes all of itself again.
TEST(StepCost, AnOverlappedExchangeShowsWhatTheWholeLayerDoesNotHide) {
  ModelSpec model = test::little_gpt(1);
  model.layers.change([](LayerKind& kind) {
    kind.moe = MixtureOfExperts{.experts = 8, .experts_per_token = 2, .expert = *kind.mlp};
    kind.mlp.reset();
  });
  Layout layout;
  layout.layers_per_stage = {1};
  layout.data = layout.expert = 4;
  StageKind one;
  for (const double bytes_per_s : {1e6, 1e8, 1e10}) {
    const PlainCost source(bytes_per_s);
    const auto price = [&](bool overlaps, Recompute recompute) {
      layout.overlap_exchange = overlaps;
      models::PiecePrograms programs(model, layout, 16);
      one.layers = one.recomputed = programs.kinds()->all();
      return PieceCosts(programs, source).stage(one, recompute);
    };
    const PieceCost blocking = price(false, Recompute::none), overlapped = price(true, Recompute::none);
    const double exchange_s = blocking.forward_collective.total() + blocking.backward_collective.total();
    const double compute_s = blocking.forward_s + blocking.backward_s - exchange_s;
    EXPECT_NEAR(overlapped.forward_collective.total() + overlapped.backward_collective.total(),
                exposed_s(exchange_s, compute_s, source.constants().collective_overlap_share),
                1e-9 * exchange_s);
    EXPECT_LT(overlapped.forward_s, blocking.forward_s);
    EXPECT_LT(overlapped.input_gradient_s, blocking.input_gradient_s);
    EXPECT_EQ(price(true, Recompute::full).backward_s, price(false, Recompute::full).backward_s);
  }
}

// Each operator priced once gives what every pass by itself gives.
TEST(RooflineCost, PassesTogetherAreThePassesByThemselves) {
  const Fixture f;
  const auto source = make_roofline_cost(f.cluster);
  Layout layout;
  layout.tensor = 2;
  const models::LayerProgram program = f.layer_of(layout);
  const auto together = source->pieces_s(Piece::layer, layout, program);
  for (const auto& [recompute, name] : EnumNames<Recompute>::table()) {
    layout.recompute = recompute;
    const PieceSeconds& p = together[size_t(recompute)];
    EXPECT_DOUBLE_EQ(p.forward_s, source->piece_s(Piece::layer, Phase::forward, layout, program)) << name;
    EXPECT_DOUBLE_EQ(p.backward_s, source->piece_s(Piece::layer, Phase::backward, layout, program)) << name;
    EXPECT_DOUBLE_EQ(p.input_gradient_s,
                     source->piece_s(Piece::layer, Phase::input_gradient, layout, program));
    EXPECT_DOUBLE_EQ(p.weight_gradient_s,
                     source->piece_s(Piece::layer, Phase::weight_gradient, layout, program));
  }
}

TEST(ProfileCost, AnUnmeasuredGroupScalesFromTheNearestByTheFormula) {
  const Fixture f;
  const auto time = [&](int64_t ranks) {
    return f.source->collective_s(models::CollectiveKind::all_reduce, 1 << 20, {ranks, ranks});
  };
  const auto formula = [&](int64_t ranks) {
    return collective_s(models::CollectiveKind::all_reduce, 1 << 20, {ranks, ranks}, f.cluster);
  };
  EXPECT_DOUBLE_EQ(time(2), 1048576 / 1e9 + 1e-5);
  EXPECT_DOUBLE_EQ(time(4), time(2) * formula(4) / formula(2));
  EXPECT_DOUBLE_EQ(time(1), 0.0);
}

// Between hosts: one rank of each as measured, more by the formula, and never from what a node did.
TEST(ProfileCost, TakesTimesBetweenHostsWhereThereAreSome) {
  Fixture f;
  f.cluster.devices = 8;
  f.cluster.devices_per_node = 2;
  profiler::TransportTiming far{profiler::TransportOperation::all_reduce, 2, 1 << 20, 0.25, 0.0, 2};
  f.profile.transport.push_back(far);
  far.operation = profiler::TransportOperation::send_receive;
  far.seconds = 0.125;
  f.profile.transport.push_back(far);
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  const auto time = [&](const GroupPlace& group) {
    return source->collective_s(models::CollectiveKind::all_reduce, 1 << 20, group);
  };
  const auto formula = [&](const GroupPlace& group) {
    return collective_s(models::CollectiveKind::all_reduce, 1 << 20, group, f.cluster);
  };
  EXPECT_DOUBLE_EQ(time({2, 4}), 0.25);
  EXPECT_DOUBLE_EQ(time({4, 8}), 0.25 * formula({4, 8}) / formula({2, 4}));
  EXPECT_LT(time({2, 2}), 0.01);
  EXPECT_DOUBLE_EQ(source->transfer_s(1 << 20, 0, 2, 1), 0.125);
  EXPECT_LT(source->transfer_s(1 << 20, 0, 1, 1), 0.01);
}

// Times of several sequences: each plan takes its own.
TEST(ProfileCost, TakesTheSequenceOfThePlan) {
  Fixture f;
  std::vector<profiler::PieceTiming> longer = f.profile.pieces;
  for (profiler::PieceTiming& t : longer) t.sequence = 32, t.seconds *= 3;
  f.profile.pieces.insert(f.profile.pieces.end(), longer.begin(), longer.end());
  const double usual = f.layer(1);
  f.workload.sequence = 32;
  f.source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  EXPECT_EQ(f.source->origin().source, "profile");
  EXPECT_DOUBLE_EQ(f.layer(1), 3 * usual);
}

// One node of two hosts was measured: what goes over the link between them is the cluster file's to say.
TEST(ProfileCost, ALinkBetweenNodesIsNotWhatWasMeasured) {
  Fixture f;
  f.cluster.devices = 4;
  f.cluster.devices_per_node = 2;
  f.cluster.levels = {{"shared-memory", 2, 1e-6, 1e10}, {"ethernet", 4, 1e-4, 1e6}};
  const int64_t bytes = 1048576;
  const double within_s = f.source->collective_s(models::CollectiveKind::all_reduce, bytes, {2, 2});
  EXPECT_DOUBLE_EQ(within_s, double(bytes) / 1e9 + 1e-5) << "as measured";
  EXPECT_GT(f.source->collective_s(models::CollectiveKind::all_reduce, bytes, {2, 4}), 1.0);
  EXPECT_DOUBLE_EQ(f.source->transfer_s(bytes, 0, 1, 1), double(bytes) / 2e9 + 1e-6);
  EXPECT_GT(f.source->transfer_s(bytes, 1, 2, 1), 1.0);
}

// Sequences cut over ranks were not timed: the measured piece times the operators' ratio.
TEST(ProfileCost, AShareOfASequenceTakesTheShareOfItsOperators) {
  Fixture f;
  Layout layout;
  layout.tensor = 2;
  const auto operators = [&] {
    return sum_of_operators(
        f.layer_of(layout), Piece::layer, Phase::forward, layout.recompute,
        [&](const models::Operator& op, Phase p) { return f.source->operator_s(op.shape, p); });
  };
  const double whole = operators();
  EXPECT_DOUBLE_EQ(f.source->piece_s(Piece::layer, Phase::forward, layout, f.layer_of(layout)), 1.0);
  layout.sequence_parallel = true;
  EXPECT_LT(operators(), whole);
  EXPECT_NEAR(f.source->piece_s(Piece::layer, Phase::forward, layout, f.layer_of(layout)),
              operators() / whole, 1e-12);
}

// A GPU is a rank's own, and what was not measured of its links is the catalog's.
TEST(ProfileCost, OfAGpuTakesTheCatalogsLinks) {
  Fixture f;
  f.cluster = profiler::load_cluster("dgx-h200:2", {});
  f.profile.transport.clear();
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  const auto catalog = make_device_cost(f.cluster, Execution{});
  EXPECT_TRUE(source->rate_by_active_ranks().empty());
  for (const int64_t ranks : {8, 16}) {
    const GroupPlace group{ranks, ranks};
    EXPECT_DOUBLE_EQ(source->collective_s(models::CollectiveKind::all_gather, 1 << 24, group),
                     catalog->collective_s(models::CollectiveKind::all_gather, 1 << 24, group));
    EXPECT_DOUBLE_EQ(source->overlap_share(group), catalog->overlap_share(group));
  }
  EXPECT_DOUBLE_EQ(source->transfer_s(1 << 24, 0, 8, 1), catalog->transfer_s(1 << 24, 0, 8, 1));
  EXPECT_DOUBLE_EQ(source->offloaded_optimizer_s(1 << 24), catalog->offloaded_optimizer_s(1 << 24));
  Layout layout;
  EXPECT_DOUBLE_EQ(source->piece_s(Piece::layer, Phase::forward, layout, f.layer_of(layout)), 2.0)
      << "as measured";
}

// What leaves a CPU rank's memory stays in the machine's: copies on the way, and no link to a host.
TEST(CostSources, ACpuRankOffloadsForTheCopiesAlone) {
  Fixture f;
  ASSERT_EQ(f.cluster.device.kind, DeviceKind::cpu);
  f.cluster.device.memory_bandwidth_bytes_per_s = f.profile.memory_bandwidth_bytes_per_s = 1e10;
  const auto profiled = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  const auto roofline = make_roofline_cost(f.cluster);
  for (const CostSource* source : {profiled.get(), roofline.get()}) {
    const double more = source->offloaded_optimizer_s(1 << 24) - source->optimizer_s(1 << 24);
    EXPECT_GE(more, 16.0 * (1 << 24) / 1e10 * (1 - 1e-9));
    EXPECT_LT(more, 2 * 16.0 * (1 << 24) / 1e10);
  }
}

TEST(ProfileCost, AnotherPrecisionIsNotWhatWasTimed) {
  const Fixture f;
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::bf16, f.cluster);
  EXPECT_EQ(source->origin().source, "profile (operators)");
}

TEST(StepCost, ATransferIsPricedByTheLinkItCrosses) {
  // Four pipeline ranks of one device each, two to a node: the middle boundary crosses nodes.
  Fixture f;
  f.cluster.devices = 4;
  f.cluster.levels = {{"inner", 2, 1e-6, 1e9}, {"outer", 4, 1e-3, 1e6}};
  const auto source = make_roofline_cost(f.cluster);
  Layout layout;
  layout.pipeline = 4;
  layout.layers_per_stage = {1, 1, 1, 1};
  const StepCost cost = cost_of(f.model, layout, f.workload, *source);
  const auto forward = [&](size_t s) { return cost.stages[s].of(InstructionKind::transfer_activation); };
  EXPECT_LT(forward(0), 1e-3);
  EXPECT_GT(forward(1), 1e-3);
  EXPECT_LT(forward(2), 1e-3);
  EXPECT_EQ(cost.stages[2].of(InstructionKind::transfer_gradient), forward(1)) << "the same way back";
}

TEST(Roofline, FullRecomputeAddsAForwardWithoutWhatNoBackwardReads) {
  Fixture f;
  f.cluster.device.kind = DeviceKind::gpu;
  const auto source = make_roofline_cost(f.cluster);
  Layout layout;
  const auto seconds = [&](Phase phase) {
    return source->piece_s(Piece::layer, phase, layout, f.layer_of(layout));
  };
  const double none = seconds(Phase::backward), forward = seconds(Phase::forward);
  layout.recompute = Recompute::selective;
  const double selective = seconds(Phase::backward);
  layout.recompute = Recompute::full;
  const double full = seconds(Phase::backward);
  EXPECT_LT(none, selective);
  EXPECT_LT(selective, full);
  EXPECT_LT(full, none + forward) << "the last projection and residual are not run again";
  EXPECT_GT(full, none + 0.6 * forward);
  layout.micro_batch = 64;
  EXPECT_GT(seconds(Phase::forward), forward);
}

TEST(OperatorPieces, RecomputesWhatTheRuntimeRunsAgain) {
  Layout layout;
  const models::LayerProgram program = models::layer_program(test::little_gpt(), 0, layout, 16);
  std::vector<std::string> full, selective;
  for (size_t i = 0; i < program.operators.size(); ++i) {
    EXPECT_EQ(recomputed_share(program, i, Recompute::none), 0.0);
    if (recomputed_share(program, i, Recompute::full) == 1.0) full.emplace_back(program.operators[i].name);
    if (recomputed_share(program, i, Recompute::selective) == 1.0)
      selective.emplace_back(program.operators[i].name);
  }
  EXPECT_EQ(selective, std::vector<std::string>{"attention.core"});
  EXPECT_EQ(full.front(), "attention.norm");
  EXPECT_EQ(full.back(), "mlp.activation");
  EXPECT_EQ(full.size(), program.operators.size() - 2);
}

TEST(Roofline, CpuRanksShareTheCoresOfTheirMachine) {
  Fixture f;
  f.cluster.cores_per_node = 2;
  const auto rates = make_roofline_cost(f.cluster)->rate_by_active_ranks();
  EXPECT_EQ(rates, (std::vector<double>{1.0, 1.0})) << "beyond the table the total stays";
  f.cluster.device.kind = DeviceKind::gpu;
  EXPECT_TRUE(make_roofline_cost(f.cluster)->rate_by_active_ranks().empty());
}

// Two machines in a row: some stage's weights are the first that are gathered without a pause to the end.
TEST(StepEnd, IsTheLongestWayThroughOptimizerStepsAndGathering) {
  std::mt19937 random(11);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::pair<double, double>> stages(1 + random() % 6);
    StepEnd end;
    for (auto& [optimizer, gather] : stages) {
      optimizer = double(random() % 10);
      gather = double(random() % 10);
      end.add(optimizer, gather);
    }
    double longest = 0.0;
    for (size_t first = 0; first < stages.size(); ++first) {
      double way = 0.0;
      for (size_t s = 0; s < stages.size(); ++s)
        way += (s <= first ? stages[s].first : 0.0) + (s >= first ? stages[s].second : 0.0);
      longest = std::max(longest, way);
    }
    EXPECT_EQ(end.end_s, longest);
  }
}

}  // namespace
}  // namespace mpt::planner
