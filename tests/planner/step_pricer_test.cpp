// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/step_pricer.h"

#include <gtest/gtest.h>

#include <random>

#include "planner/cost/cost_source.h"
#include "planner/cost/operator_collectives.h"
#include "planner/cost/operator_pieces.h"
#include "tests/planner/priced_layouts.h"
#include "tests/support/make_plan.h"

namespace mpt::planner {
namespace {

using profiler::Phase;
using profiler::Piece;

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
    layout.execution.edit().traffic.sums_beside_weight_gradient = beside;
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

TEST(StepCost, GathersOfShardedWeightsReachAShareOfTheNetworksRate) {
  const auto traffic = [&](int64_t nodes, double rate) {
    Layout data;
    data.data = data.shard = 8 * nodes;
    data.zero = 3;
    data.execution.edit().traffic.sharded_network_rate = rate;
    test::Priced p("llama3-8b", "dgx-a100:" + std::to_string(nodes), data, "fsdp");
    p.problem.execution.traffic.sharded_network_rate =
        p.layout.execution.edit().traffic.sharded_network_rate = rate;
    const auto source = make_device_cost(p.problem.cluster, p.problem.execution);
    return sharded_traffic(p.layout, models::ParameterShare{int64_t{1} << 30, 0}, {}, *source);
  };
  const ShardedTraffic all = traffic(2, 1.0), half = traffic(2, 0.5);
  EXPECT_NEAR(half.backward_s, 2.0 * all.backward_s, 1e-9);
  EXPECT_NEAR(half.scatter_s, 2.0 * all.scatter_s, 1e-9);
  EXPECT_EQ(traffic(1, 0.5).forward_s, traffic(1, 1.0).forward_s) << "within a node";
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
