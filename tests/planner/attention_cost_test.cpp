// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "planner/answer/recommend.h"
#include "planner/cost/calibration.h"
#include "planner/cost/cost_source.h"
#include "profiler/hardware/catalog.h"
#include "tests/support/little_profile.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;
using models::OperatorShape;
using profiler::Phase;

// One line of profiler/hardware/training_attention.csv.
struct Measured {
  const char* cluster;
  int64_t head_dim, value_head_dim, heads, kv_heads, sequence, window;
  Precision precision;
  double forward_ms, backward_ms;
};

OperatorShape core(const Measured& m) {
  OperatorShape s;
  s.kind = OperatorKind::attention;
  s.precision = m.precision;
  s.batch = 2;
  s.sequence = m.sequence;
  s.heads = m.heads;
  s.kv_heads = m.kv_heads;
  s.head_dim = m.head_dim;
  s.value_head_dim = m.value_head_dim;
  s.inner = m.window;
  return s;
}

Execution execution(AttentionKernel kernel, bool fp8 = false) {
  Execution e;
  e.kernels.attention = kernel;
  e.kernels.fp8_attention = fp8;
  return e;
}

// On a chip that is not warm, without starts and casts: what a benchmark of single kernels measures.
double milliseconds(const Measured& m, Phase phase, const Execution& e = execution(AttentionKernel::cudnn)) {
  Calibration c = shipped_calibration();
  c.kernel_gap_s = c.straggler_per_doubling = c.fp8_cast_bytes = c.untransposed_cast_bytes = 0.0;
  c.sustained = 1.0;
  const ClusterSpec cluster = profiler::load_cluster(m.cluster, std::nullopt);
  return 1e3 * make_kernel_cost(cluster, e, c)->operator_s(core(m), phase);
}

// As TransformerEngine chooses.
TEST(AttentionCost, CudnnsAttentionIsForHopperAndLater) {
  for (const auto& [cluster, same] : {std::pair{"dgx-a100:1", true}, {"dgx-h100:1", false}}) {
    const Measured m{cluster, 128, 128, 32, 8, 8192, 0, Precision::bf16, 0, 0};
    for (const Phase phase : {Phase::forward, Phase::input_gradient}) {
      const double flash2 = milliseconds(m, phase, execution(AttentionKernel::flash2));
      EXPECT_EQ(milliseconds(m, phase) == flash2, same) << cluster;
      EXPECT_LE(milliseconds(m, phase), flash2) << cluster;
    }
  }
}

TEST(AttentionCost, WhatWasMeasuredForTrainingsComesBack) {
  const Precision bf16 = Precision::bf16;
  for (const Measured& m : {Measured{"gb200-nvl72:1", 128, 128, 64, 8, 8192, 0, bf16, 1.397, 4.127},
                            {"gb200-nvl72:1", 192, 128, 128, 128, 4096, 0, bf16, 0.977, 3.383},
                            {"gb200-nvl72:1", 192, 128, 128, 128, 4096, 0, Precision::fp8, 0.656, 2.112},
                            {"gb300-nvl72:1", 128, 128, 64, 8, 4096, 0, Precision::mxfp8, 0.242, 1.203},
                            {"gb300-nvl72:1", 192, 128, 128, 128, 8192, 0, Precision::mxfp8, 1.944, 8.030}}) {
    const Execution e = execution(AttentionKernel::cudnn, is_narrow(m.precision));
    EXPECT_NEAR(milliseconds(m, Phase::forward, e) / m.forward_ms, 1.0, 0.01) << m.cluster << m.sequence;
    EXPECT_NEAR(milliseconds(m, Phase::input_gradient, e) / m.backward_ms, 1.0, 0.01) << m.cluster;
  }
}

// H200, one sequence of 4,096 tokens and 64 heads: 0.465 and 1.450 ms. H100 has its multiprocessors and its
// power.
TEST(AttentionCost, ChipsOfOneKindShareAMeasurement) {
  const Measured two{"dgx-h100:1", 128, 128, 64, 8, 4096, 0, Precision::bf16, 0.930, 2.900};
  EXPECT_NEAR(milliseconds(two, Phase::forward) / two.forward_ms, 1.0, 0.15);
  EXPECT_NEAR(milliseconds(two, Phase::input_gradient) / two.backward_ms, 1.0, 0.15);
  const Measured same{"dgx-a100:1", 128, 128, 64, 8, 4096, 0, Precision::bf16, 0.0, 0.0};
  for (const Phase phase : {Phase::forward, Phase::input_gradient})
    EXPECT_EQ(milliseconds(same, phase), milliseconds(same, phase, execution(AttentionKernel::flash)))
        << "none was measured for an A100";
}

TEST(AttentionCost, AWindowIsAsSlowAsTheShortSequencesThatItIsLike) {
  struct Rates {
    const char* cluster;
    int64_t sequence, window, heads;
    double forward, backward;
  };
  Calibration c = shipped_calibration();
  c.kernel_gap_s = c.straggler_per_doubling = 0.0;
  c.sustained = 1.0;
  for (const Rates& m : {Rates{"dgx-h200:1", 4096, 1024, 64, 336e12, 289e12},
                         {"dgx-h200:1", 32768, 1024, 64, 358e12, 299e12},
                         {"gb300-nvl72:1", 4096, 128, 128, 167e12, 191e12},
                         {"gb200-nvl72:1", 8192, 128, 128, 165e12, 187e12}}) {
    const OperatorShape s =
        core({m.cluster, 64, 64, m.heads, m.heads, m.sequence, m.window, Precision::bf16, 0.0, 0.0});
    const auto source = make_kernel_cost(profiler::load_cluster(m.cluster, std::nullopt), {}, c);
    const double flop = models::forward_flop(s);
    EXPECT_NEAR(flop / source->operator_s(s, Phase::forward) / m.forward, 1.0, 1.0 / 3) << m.cluster;
    EXPECT_NEAR(2.5 * flop / source->operator_s(s, Phase::input_gradient) / m.backward, 1.0, 1.0 / 3)
        << m.cluster;
  }
}

// cuDNN 9.22 on GB200: a backward in mxfp8 takes 2.080 ms in windows of 128, where one in 16 bits takes
// 0.465.
TEST(AttentionCost, ABackwardInFp8DoesNotSkipWhatIsOutsideOfAWindow) {
  const Measured window{"gb200-nvl72:1", 64, 64, 128, 128, 4096, 128, Precision::mxfp8, 0.210, 2.080};
  const Execution narrow = execution(AttentionKernel::cudnn, true);
  EXPECT_NEAR(milliseconds(window, Phase::input_gradient, narrow) / window.backward_ms, 1.0, 0.02);
  EXPECT_NEAR(milliseconds(window, Phase::forward, narrow) / window.forward_ms, 1.0, 0.25);
  const double wide_ms = milliseconds(window, Phase::input_gradient);
  EXPECT_NEAR(wide_ms / 0.465, 1.0, 0.25);
  Measured whole = window;
  whole.window = 0;
  EXPECT_EQ(milliseconds(whole, Phase::input_gradient, narrow),
            milliseconds(window, Phase::input_gradient, narrow));
}

TEST(AttentionCost, OnlyWhereProductsRunInFp8AttentionDoes) {
  Measured m{"gb300-nvl72:1", 128, 128, 64, 8, 8192, 0, Precision::bf16, 0.0, 0.0};
  const Execution narrow = execution(AttentionKernel::cudnn, true);
  EXPECT_EQ(milliseconds(m, Phase::forward, narrow), milliseconds(m, Phase::forward));
  m.precision = Precision::fp8;
  EXPECT_LT(milliseconds(m, Phase::forward, narrow), 0.8 * milliseconds(m, Phase::forward));
}

// Queries, keys and values are narrowed forward, the result's gradient on the way back: here 7 bytes each.
TEST(AttentionCost, NarrowingItsInputsTakesTime) {
  const Measured m{"gb300-nvl72:1", 192, 128, 128, 128, 4096, 0, Precision::mxfp8, 0.0, 0.0};
  const ClusterSpec cluster = profiler::load_cluster(m.cluster, std::nullopt);
  Calibration without = shipped_calibration();
  without.fp8_cast_bytes = 0.0;
  const Execution narrow = execution(AttentionKernel::cudnn, true);
  const auto casts = make_kernel_cost(cluster, narrow, shipped_calibration()),
             none = make_kernel_cost(cluster, narrow, without);
  const auto elements = [&](Phase phase) {
    return (casts->operator_s(core(m), phase) - none->operator_s(core(m), phase)) *
           cluster.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share / 7.0;
  };
  EXPECT_NEAR(elements(Phase::forward), 2.0 * 4096 * 128 * (192 + 192 + 128), 1e3);
  EXPECT_NEAR(elements(Phase::input_gradient), 2.0 * 4096 * 128 * 128, 1e3);
}

// FLOP/s of a forward by mpt-run's kernels: cuDNN's, those on tensor cores, scalar ones.
TEST(AttentionCost, TheRuntimesKernelsHaveTheirOwnRates) {
  const auto rate = [](const char* cluster, OperatorShape s) {
    const ClusterSpec c = profiler::load_cluster(cluster, std::nullopt);
    const auto source = make_kernel_cost(c, execution(AttentionKernel::own));
    return models::forward_flop(s) / source->operator_s(s, Phase::forward);
  };
  const OperatorShape plain = core({"", 128, 128, 32, 8, 8192, 0, Precision::bf16, 0, 0});
  EXPECT_GT(rate("dgx-h100:1", plain), 4e14);
  EXPECT_LT(rate("dgx-a100:1", plain), 4e13) << "cuDNN is not asked on A100";
  OperatorShape ring = plain;
  ring.context = 4;
  EXPECT_LT(rate("dgx-h100:1", ring), 1e14);
  EXPECT_GT(rate("dgx-h100:1", ring), 5e13);
  const double scalar = shipped_calibration().scalar_attention_flop_per_s;
  std::vector<OperatorShape> others(6, plain);
  others[0].inner = 4096;
  others[1].scaled = true;
  others[2].capped = true;
  others[3].head_dim = 192;
  others[4].precision = Precision::fp32;
  others[5].head_dim = others[5].value_head_dim = 260;
  for (const OperatorShape& s : others) EXPECT_NEAR(rate("dgx-h100:1", s), scalar, 0.01 * scalar);
  OperatorShape wide_window = plain;
  wide_window.inner = 8192;
  EXPECT_EQ(rate("dgx-h100:1", wide_window), rate("dgx-h100:1", plain));
}

// What was measured of cuDNN's kernel does not price a window.
TEST(AttentionCost, AProfileOfOneKernelSaysNothingOfAnother) {
  const ClusterSpec cluster = profiler::load_cluster("dgx-h100:1", std::nullopt);
  profiler::Profile profile = test::little_profile();
  OperatorShape s = core({"", 64, 64, 32, 8, 4096, 0, Precision::bf16, 0, 0});
  profile.operators = {{s, Phase::forward, 1e-3, 0.1}};
  const ModelSpec model = test::little_llama(2);
  const auto source = make_profile_cost(profile, model, {8, 4096}, Precision::bf16, cluster);
  EXPECT_DOUBLE_EQ(source->operator_s(s, Phase::forward), 1e-3);
  s.inner = 1024;
  EXPECT_DOUBLE_EQ(source->operator_s(s, Phase::forward),
                   make_kernel_cost(cluster, execution(AttentionKernel::own))->operator_s(s, Phase::forward));
}

TEST(AttentionCost, APlanWithScalarAttentionSaysSo) {
  const auto noted = [](const char* model, const char* framework) {
    PlanRequest request;
    request.model.name = model;
    request.cluster.name = "dgx-h100:1";
    request.framework = framework;
    request.global_batch = 64;
    request.sequence = 8192;
    request.bounds.tensor = {4};
    request.beyond_framework = true;  // Megatron-LM does not train Gemma 2
    const std::vector<std::string> notes = estimate(request).plan.notes;
    return std::any_of(notes.begin(), notes.end(), [](const std::string& note) {
      return note.find("attention of 26 of 26 layers") != std::string::npos;
    });
  };
  EXPECT_TRUE(noted("gemma2-2b", "mpt"));
  EXPECT_FALSE(noted("gemma2-2b", "megatron-core"));
  EXPECT_FALSE(noted("llama3-8b", "mpt"));
}

}  // namespace
}  // namespace mpt::planner
