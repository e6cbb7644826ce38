// SPDX-License-Identifier: Apache-2.0
#include "planner/cost/kernel_parts.h"

#include <gtest/gtest.h>

#include "models/zoo.h"
#include "planner/cost/calibration.h"
#include "planner/cost/cost_source.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

using profiler::Phase;

models::OperatorShape product_in_8_bits(int64_t rows, int64_t columns, int64_t inner) {
  models::OperatorShape s;
  s.precision = Precision::fp8;
  s.rows = rows;
  s.columns = columns;
  s.inner = inner;
  return s;
}

ClusterSpec h100() { return profiler::load_cluster("dgx-h100:4", std::nullopt); }

// Elements of the input and of the gradient, times what runtime/device/cuda/fp8.cu moves for each.
TEST(OwnCasts, AreWhatTheRuntimesKernelsMove) {
  const double input = 4096.0 * 2048.0, gradient = 4096.0 * 8192.0;
  const models::OperatorShape s = product_in_8_bits(4096, 8192, 2048);
  EXPECT_EQ(own_cast_bytes(s, Phase::forward), 5.0 * input);
  EXPECT_EQ(own_cast_bytes(s, Phase::input_gradient), 6.0 * gradient);
  EXPECT_EQ(own_cast_bytes(s, Phase::weight_gradient), 3.0 * input);
  const ClusterSpec cluster = h100();
  Calibration without = shipped_calibration();
  without.fp8_cast_bytes = 0.0;
  for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient})
    EXPECT_EQ(make_kernel_cost(cluster, {})->operator_s(s, phase),
              make_kernel_cost(cluster, {}, without)->operator_s(s, phase));
}

TEST(OwnCasts, ActivationsFindMagnitudesAndZero3NarrowsWeightsAgain) {
  const ModelSpec model = models::load_model("llama3.2-1b");
  const ClusterSpec cluster = h100();
  const double bandwidth =
      cluster.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share;
  const double tokens = 4096.0, hidden = 2048.0, ffn = 8192.0;
  Layout layout;
  layout.micro_batch = 1;
  layout.precision = Precision::fp8;
  const auto source = make_kernel_cost(cluster, {});
  const auto layer_s = [&](int64_t zero, Phase phase) {
    layout.zero = zero;
    return source->piece_s(profiler::Piece::layer, phase, layout,
                           models::layer_program(model, model.layers[0], layout, 4096));
  };
  const auto operators_s = [&](Phase phase) {
    double sum = 0.0;
    for (const models::Operator& op : models::layer_program(model, model.layers[0], layout, 4096).operators)
      sum += source->operator_s(op.shape, phase);
    return sum;
  };
  const double weights = hidden * (3072.0 + hidden + 3.0 * ffn);
  EXPECT_NEAR((layer_s(0, Phase::forward) - operators_s(Phase::forward)) * bandwidth, -2.0 * tokens * ffn,
              1e3);
  EXPECT_NEAR((layer_s(0, Phase::input_gradient) - operators_s(Phase::input_gradient)) * bandwidth,
              -4.0 * tokens * ffn, 1e3);
  EXPECT_NEAR((layer_s(3, Phase::forward) - layer_s(2, Phase::forward)) * bandwidth, 5.0 * weights, 1e3);
}

}  // namespace
}  // namespace mpt::planner
