// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/footprint.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/operator_pieces.h"
#include "planner/cost/step_pricer.h"
#include "profiler/hardware/catalog.h"
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

TEST(ProfileCost, EachKindOfLayerHasItsOwnTime) {
  Fixture f;
  f.model = test::with_dense_layers(test::little_mixtral(), [](int64_t layer) { return layer < 2; });
  f.profile = sample_profile(f.model);
  for (profiler::PieceTiming t : std::vector(f.profile.pieces)) {
    if (t.piece != Piece::layer) continue;
    t.layer = 2;
    t.seconds *= 7.0;
    f.profile.pieces.push_back(t);
  }
  const Layout layout;
  const auto layer_s = [&](const CostSource& source, int64_t layer, const Layout& of) {
    return source.piece_s(Piece::layer, Phase::forward, of,
                          models::layer_program(f.model, layer, of, f.workload.sequence));
  };
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  EXPECT_DOUBLE_EQ(layer_s(*source, 1, layout), 2.0);
  EXPECT_DOUBLE_EQ(layer_s(*source, 3, layout), 14.0);
  // A share of the sequence takes the share of its own kind's time.
  Layout split = layout;
  split.context = 2;
  EXPECT_GT(layer_s(*source, 3, split), 0.3 * 14.0);
  EXPECT_LT(layer_s(*source, 3, split), 14.0);
}

// Older profiles have one layer for all kinds.
TEST(ProfileCost, AKindThatWasNotTimedCostsWhatItsOperatorsSay) {
  Fixture f;
  f.model = test::with_dense_layers(test::little_mixtral(), [](int64_t layer) { return layer < 2; });
  f.model.layers.change([](LayerKind& kind) {
    if (kind.mlp) kind.mlp->ffn_hidden = 1024;
  });
  f.profile = sample_profile(f.model);
  const Layout layout;
  const auto source = make_profile_cost(f.profile, f.model, f.workload, Precision::fp32, f.cluster);
  const auto seconds = [&](int64_t layer) {
    return source->piece_s(Piece::layer, Phase::forward, layout,
                           models::layer_program(f.model, layer, layout, f.workload.sequence));
  };
  EXPECT_DOUBLE_EQ(seconds(0), 2.0);
  EXPECT_GT(seconds(3), 0.0);
  EXPECT_LT(seconds(3), 1.0) << "its experts are far smaller than that layer's MLP";
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

}  // namespace
}  // namespace mpt::planner
