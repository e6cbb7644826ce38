// SPDX-License-Identifier: Apache-2.0

// The host, which launches kernels ahead of the device: what it takes, and when that counts.

#include <gtest/gtest.h>

#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/cost/calibration.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/step_cost.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;
using models::OperatorShape;
using profiler::Phase;
using profiler::Piece;

class HostCostTest : public ::testing::Test {
 protected:
  std::unique_ptr<CostSource> cost(const Execution& execution = {}) {
    return make_kernel_cost(cluster_, execution, shipped_calibration());
  }
  ClusterSpec cluster_ = profiler::load_cluster("dgx-h100:4", std::nullopt);
};

TEST_F(HostCostTest, SmallLayersWaitForTheHost) {
  const ModelSpec model = models::load_model("gpt2-124m");
  Layout layout;
  layout.precision = Precision::bf16;
  const models::LayerProgram layer = models::layer_program(model, 0, layout, 128);
  Execution slow, blocking, graphs;
  slow.host.launch_us = blocking.host.launch_us = graphs.host.launch_us = 100.0;
  blocking.host.blocking_launches = true;
  graphs.kernels.graphs = true;
  const auto device = [&](const Execution& e) {
    return cost(e)->pieces_s(Piece::layer, layout, layer)[0].forward_s;
  };
  const auto host = [&](const Execution& e) {
    return cost(e)->launching_s(Piece::layer, layer)[0].forward_s;
  };
  EXPECT_GT(host(slow), 1e-3) << "some twenty kernels of 100 us";
  EXPECT_EQ(device(slow), device({}));
  EXPECT_NEAR(device(blocking), device({}) + host(slow), 1e-9);
  EXPECT_EQ(host(blocking), 0.0);
  EXPECT_EQ(host(graphs), 0.0);
  EXPECT_EQ(device(graphs), device({}));
}

// Collectives are launched ahead as kernels are: a layer takes the longer of the host's time and of all that
// the device does, not the host's and its collectives.
TEST_F(HostCostTest, TheHostLaunchesCollectivesAheadToo) {
  const ModelSpec model = models::load_model("gpt2-124m");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.tensor = 4;
  layout.layers_per_stage = {model.layers.count()};
  StageKind one;
  one.layers = one.recomputed = models::KindCounts(1);
  one.layers[0] = 1;
  for (const double launch_us : {0.0, 6.0, 12.0, 100.0}) {
    Execution e;
    e.host.launch_us = launch_us;
    const auto source = cost(e);
    models::PiecePrograms programs(model, layout, 1024);
    const models::LayerProgram layer = models::layer_program(model, 0, layout, 1024);
    const PieceSeconds device = source->pieces_s(Piece::layer, layout, layer)[0];
    const PieceSeconds host = source->launching_s(Piece::layer, layer)[0];
    const PieceCost layer_cost = PieceCosts(programs, *source).stage(one, Recompute::none);
    const double forward_s = device.forward_s + layer_cost.forward_collective.total();
    EXPECT_GT(layer_cost.forward_collective.total(), 0.0);
    EXPECT_DOUBLE_EQ(layer_cost.forward_s, std::max(forward_s, host.forward_s)) << launch_us;
    EXPECT_DOUBLE_EQ(layer_cost.backward_s,
                     std::max(device.backward_s + layer_cost.backward_collective.total(), host.backward_s))
        << launch_us;
    EXPECT_EQ(layer_cost.forward_s == host.forward_s, launch_us >= 12.0) << launch_us;
  }
}

// Experts of Qwen3 30B, eight ranks and 4,096 tokens on each: products of 2,048 x 1,536 x 2,048.
TEST_F(HostCostTest, TheHostLaunchesSmallExpertsOneByOne) {
  OperatorShape small;
  small.kind = OperatorKind::expert_linear;
  small.precision = Precision::fp8;
  small.rows = 32768;
  small.columns = 1536;
  small.inner = 2048;
  small.batch = 16;
  Execution execution;
  execution.traffic.deduplicates_dispatch = true;
  const auto forward_s = [&](const OperatorShape& s, double launch_us, bool graphs) {
    execution.host.launch_us = launch_us;
    execution.kernels.graphs = graphs;
    return cost(execution)->operator_s(s, Phase::forward);
  };
  const double device_s = forward_s(small, 0.0, false);
  EXPECT_EQ(forward_s(small, 1.0, false), device_s) << "the host is ahead";
  EXPECT_GT(forward_s(small, 20.0, false), device_s);
  // Five launches each; a microsecond more for each of them. A weight gradient finds its input cast.
  EXPECT_NEAR(forward_s(small, 21.0, false) - forward_s(small, 20.0, false), 16 * 5 * 1e-6, 1e-9);
  const auto weight_s = [&](double launch_us) {
    execution.host.launch_us = launch_us;
    return cost(execution)->operator_s(small, Phase::weight_gradient);
  };
  EXPECT_NEAR(weight_s(51.0) - weight_s(50.0), 16 * 3 * 1e-6, 1e-9);
  EXPECT_EQ(forward_s(small, 20.0, true), device_s) << "the device launches them";
  OperatorShape large = small;
  large.columns = 4096;
  large.inner = 7168;
  EXPECT_EQ(forward_s(large, 6.0, false), forward_s(large, 0.0, false));
  execution.kernels.fuses_experts = true;
  EXPECT_EQ(forward_s(small, 20.0, false), forward_s(small, 0.0, false));
}

TEST_F(HostCostTest, AGraphOfTheStepHasAllMicroBatches) {
  Execution execution;
  execution.host.micro_batch_us = 150.0;
  EXPECT_EQ(cost(execution)->dispatch_s(), 150e-6);
  execution.kernels.router_graphs = true;
  EXPECT_EQ(cost(execution)->dispatch_s(), 150e-6) << "graphs of parts";
  execution.kernels.graphs = true;
  EXPECT_EQ(cost(execution)->dispatch_s(), 0.0);
}

TEST_F(HostCostTest, RoutingTakesTheHostItsTimeUnlessGraphsDoIt) {
  const ModelSpec model = models::load_model("qwen3-30b-a3b");
  Layout layout;
  layout.precision = Precision::bf16;
  const models::LayerProgram layer = models::layer_program(model, 0, layout, 4096),
                             dense = models::layer_program(models::load_model("llama3-8b"), 0, layout, 4096);
  Execution plain, routing, graphs;
  plain.host.launch_us = routing.host.launch_us = graphs.host.launch_us = 5.0;
  routing.host.expert_layer_us = graphs.host.expert_layer_us = 8000.0;
  graphs.kernels.graphs = true;
  const auto host = [&](const Execution& e, const models::LayerProgram& program, Recompute recompute) {
    return cost(e)->launching_s(Piece::layer, program)[size_t(recompute)];
  };
  const auto more = [&](double PieceSeconds::*pass, Recompute recompute = Recompute::none) {
    return host(routing, layer, recompute).*pass - host(plain, layer, recompute).*pass;
  };
  EXPECT_NEAR(more(&PieceSeconds::forward_s), 4e-3, 1e-9);
  EXPECT_NEAR(more(&PieceSeconds::backward_s), 4e-3, 1e-9);
  EXPECT_NEAR(more(&PieceSeconds::backward_s, Recompute::full), 8e-3, 1e-9) << "forward once more";
  EXPECT_EQ(more(&PieceSeconds::weight_gradient_s), 0.0);
  EXPECT_EQ(host(graphs, layer, Recompute::none).forward_s, 0.0);
  EXPECT_EQ(host(routing, dense, Recompute::none).forward_s, host(plain, dense, Recompute::none).forward_s);
}

}  // namespace
}  // namespace mpt::planner
