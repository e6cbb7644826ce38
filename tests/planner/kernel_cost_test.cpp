// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "frameworks/framework.h"
#include "models/zoo.h"
#include "planner/cost/calibration.h"
#include "planner/cost/cost_source.h"
#include "planner/cost/step_cost.h"
#include "profiler/hardware/catalog.h"
#include "profiler/hardware/kernel_tables.h"

namespace mpt::planner {
namespace {

using models::OperatorKind;
using models::OperatorShape;
using profiler::Phase;

OperatorShape product(int64_t rows, int64_t columns, int64_t inner, Precision precision = Precision::bf16) {
  OperatorShape s;
  s.kind = OperatorKind::linear;
  s.precision = precision;
  s.rows = rows;
  s.columns = columns;
  s.inner = inner;
  return s;
}

OperatorShape core(int64_t sequence, int64_t batch = 1) {
  OperatorShape s;
  s.kind = OperatorKind::attention;
  s.precision = Precision::bf16;
  s.batch = batch;
  s.sequence = sequence;
  s.heads = s.kv_heads = 32;
  s.head_dim = s.value_head_dim = 128;
  return s;
}

// Without casts to fp8 by kernels of their own (planner/cost/own_casts.h).
Execution elsewhere() {
  Execution execution;
  execution.kernels.narrows_apart = false;
  return execution;
}

class KernelCostTest : public ::testing::Test {
 protected:
  std::unique_ptr<CostSource> cost(const Execution& execution = {},
                                   const Calibration& calibration = shipped_calibration()) {
    return make_kernel_cost(cluster_, execution, calibration);
  }
  ClusterSpec cluster_ = profiler::load_cluster("dgx-h100:4", std::nullopt);
};

TEST_F(KernelCostTest, AProductTakesItsMeasuredTimeAtTheSustainedRate) {
  Calibration c = shipped_calibration();
  c.straggler_per_doubling = 0.0;
  c.sustained = 0.5;
  c.kernel_gap_s = 0.0;
  const double measured = *profiler::kernel_tables("h100-sxm-80gb")->gemm_s(false, 4096, 8192, 8192);
  EXPECT_NEAR(cost({}, c)->operator_s(product(4096, 8192, 8192), Phase::forward), 2.0 * measured, 1e-12);
}

TEST_F(KernelCostTest, GradientsAreTheProductsThatTheyAre) {
  Calibration c = shipped_calibration();
  c.kernel_gap_s = c.straggler_per_doubling = 0.0;
  const auto source = cost({}, c);
  const profiler::KernelTables& tables = *profiler::kernel_tables("h100-sxm-80gb");
  const OperatorShape s = product(4096, 1024, 16384);
  EXPECT_NEAR(source->operator_s(s, Phase::input_gradient) * c.sustained * c.input_gradient_rate,
              *tables.gemm_s(false, 4096, 16384, 1024), 1e-12);
  EXPECT_NEAR(source->operator_s(s, Phase::weight_gradient) * c.sustained * c.weight_gradient_rate,
              *tables.gemm_s(false, 1024, 16384, 4096), 1e-12);
}

// cudnn-frontend, benchmark/sdpa_benchmark_training/results, gpt_oss, bf16: TFLOP/s forward and backward of
// attention with windows. The tables' rates of whole sequences as long are a quarter (H200) to five times
// (GB300) higher.
TEST_F(KernelCostTest, ABiasOfExpertsThatIsAddedApartMovesItsRowsInFp32) {
  OperatorShape s = product(65536, 2880, 2880);
  s.kind = OperatorKind::expert_linear;
  s.batch = 16;
  Execution apart;
  apart.kernels.extras_apart = true;
  OperatorShape biased = s;
  biased.extra = true;
  EXPECT_EQ(cost()->operator_s(biased, Phase::forward), cost()->operator_s(s, Phase::forward));
  const auto source = cost(apart);
  const double elements = 65536.0 * 2880.0, bytes_per_s = 3.35e12 * shipped_calibration().bandwidth_share;
  EXPECT_NEAR(source->operator_s(biased, Phase::forward) - source->operator_s(s, Phase::forward),
              28.0 * elements / bytes_per_s, 1e-6);
  EXPECT_NEAR(
      source->operator_s(biased, Phase::input_gradient) - source->operator_s(s, Phase::input_gradient),
      40.0 * elements / bytes_per_s, 1e-6);
  EXPECT_EQ(source->operator_s(biased, Phase::weight_gradient),
            source->operator_s(s, Phase::weight_gradient));
  apart.kernels.fuses_experts = true;
  EXPECT_EQ(cost(apart)->operator_s(biased, Phase::forward), cost(apart)->operator_s(s, Phase::forward));
}

// Bytes counted by hand in Megatron-LM's sources: what a clamp in front of the activation and a rotary
// embedding with a factor move more than the fused kernels.
TEST_F(KernelCostTest, LimitsAndScaledPositionsTakePlainKernels) {
  Execution apart;
  apart.kernels.elementwise = ElementwiseKernels::fused;
  const Execution together = apart;
  apart.kernels.extras_apart = true;
  const double elements = 65536.0 * 2880.0, bytes_per_s = 3.35e12 * shipped_calibration().bandwidth_share;
  const auto more_s = [&](OperatorShape s, Phase phase) {
    s.precision = Precision::bf16;
    s.rows = 65536;
    s.columns = 2880;
    const double plain = cost(together)->operator_s(s, phase);
    EXPECT_EQ(cost(apart)->operator_s(s, phase), plain);
    s.extra = true;
    EXPECT_EQ(cost(together)->operator_s(s, phase), plain);
    return (cost(apart)->operator_s(s, phase) - plain) * bytes_per_s / elements;
  };
  OperatorShape activation, rotary;
  activation.kind = OperatorKind::activation;
  activation.gated = true;
  rotary.kind = OperatorKind::rotary;
  EXPECT_NEAR(more_s(activation, Phase::forward), 16.0, 1e-6);
  EXPECT_NEAR(more_s(activation, Phase::input_gradient), 30.0, 1e-6);
  EXPECT_NEAR(more_s(rotary, Phase::forward), 24.0 - 4.0, 1e-6);
  EXPECT_NEAR(more_s(rotary, Phase::input_gradient), 34.0 - 6.0, 1e-6);
  apart.kernels.fuses_experts = true;
  EXPECT_NEAR(more_s(activation, Phase::forward), 0.0, 1e-6);
  EXPECT_NEAR(more_s(rotary, Phase::forward), 24.0 - 4.0, 1e-6);
}

// DeepGEMM's README (55ab91f), 4,096 rows on H800: TFLOP/s of fp8 products by columns and inner length. Short
// sums gain less, because the result is written as fast as that of a 16-bit product.
TEST_F(KernelCostTest, Fp8GainsLessWhereSumsAreShort) {
  Calibration c = shipped_calibration();
  c.fp8_cast_bytes = c.kernel_gap_s = 0.0;
  const auto source = make_kernel_cost(cluster_, elsewhere(), c);
  const auto gain = [&](int64_t columns, int64_t inner) {
    return source->operator_s(product(4096, columns, inner), Phase::forward) /
           source->operator_s(product(4096, columns, inner, Precision::fp8), Phase::forward);
  };
  EXPECT_LT(gain(32768, 512), gain(24576, 1536));
  EXPECT_LT(gain(24576, 1536), gain(7168, 16384));
  EXPECT_LT(gain(7168, 16384), c.fp8_speedup);
  const auto tflops = [&](double columns, double inner) {
    return 2e-12 * 4096.0 * columns * inner /
           source->operator_s(product(4096, int64_t(columns), int64_t(inner), Precision::fp8),
                              Phase::forward);
  };
  for (const auto& [columns, inner, measured] :
       {std::tuple{32768.0, 512.0, 751.0}, std::tuple{24576.0, 1536.0, 1125.0},
        std::tuple{7168.0, 2048.0, 1168.0}, std::tuple{7168.0, 16384.0, 1426.0}})
    EXPECT_NEAR(tflops(columns, inner) / measured, 1.0, 0.15) << columns << " x " << inner;
}

// Output layer and loss in fp16 on A100, forward and backward: what 2,048 tokens more add, in ms, by width
// and words, none of them a multiple of 8 (VIA-Research/vTrain, f8dda84, data/ground_truth_single.csv: the
// part of its times that grows with micro-batches and not with layers).
TEST_F(KernelCostTest, OutputLayersOfOddVocabulariesTakeTheirMeasuredTime) {
  Execution execution;
  execution.kernels.loss = LossKernel::fp32;
  const ClusterSpec a100 = profiler::load_cluster("dgx-a100:1", std::nullopt);
  const auto source = make_kernel_cost(a100, execution);
  const auto head_s = [&](int64_t tokens, int64_t hidden, int64_t words) {
    OperatorShape loss = product(tokens, words, 0, Precision::fp16);
    loss.kind = OperatorKind::cross_entropy;
    double seconds = 0.0;
    for (const OperatorShape& s : {product(tokens, words, hidden, Precision::fp16), loss}) {
      for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient})
        seconds += source->operator_s(s, phase);
    }
    return seconds;
  };
  double error = 0.0;
  for (const auto& [hidden, words, measured_ms] :
       {std::tuple{2048, 50257, 16.91}, std::tuple{2048, 12564, 3.29}, std::tuple{2048, 6282, 1.96},
        std::tuple{1024, 50257, 8.76}, std::tuple{1024, 12564, 1.77}, std::tuple{1024, 6282, 1.11}}) {
    const double more_ms = 1e3 * (head_s(4096, hidden, words) - head_s(2048, hidden, words));
    EXPECT_NEAR(more_ms / measured_ms, 1.0, 0.2) << hidden << " x " << words;
    error += std::abs(more_ms / measured_ms - 1.0) / 6.0;
  }
  EXPECT_LT(error, 0.1);
}

// The twelve products of a layer of 4,096 (12,288 queries, keys and values; 16,384 wide, no gate) and 15,872
// tokens on B300, their inputs cast beforehand: 13.10 ms in bf16, 6.81 in fp8 with one scale for each matrix,
// 7.16 in mxfp8 and 3.76 in nvfp4 (NVIDIA/TransformerEngine, docs/examples/gemm_profiling, 2026-08-22).
TEST_F(KernelCostTest, ProductsOfALayerOnB300GainFromFewerBitsWhatWasMeasured) {
  const ClusterSpec b300 = profiler::load_cluster("dgx-b300:1", std::nullopt);
  Calibration cast = shipped_calibration();
  cast.fp8_cast_bytes = cast.untransposed_cast_bytes = cast.nvfp4_cast_bytes = 0.0;
  const auto source = make_kernel_cost(b300, elsewhere(), cast);
  const auto layer_s = [&](Precision precision) {
    double seconds = 0.0;
    for (const auto& [columns, inner] :
         {std::pair{12288, 4096}, std::pair{4096, 4096}, std::pair{16384, 4096}, std::pair{4096, 16384}}) {
      for (const Phase phase : {Phase::forward, Phase::input_gradient, Phase::weight_gradient})
        seconds += source->operator_s(product(15872, columns, inner, precision), phase);
    }
    return seconds;
  };
  const double wide = layer_s(Precision::bf16);
  EXPECT_NEAR(wide / layer_s(Precision::fp8), 13.10 / 6.81, 0.05);
  EXPECT_NEAR(wide / layer_s(Precision::mxfp8), 13.10 / 7.16, 0.05);
  EXPECT_NEAR(wide / layer_s(Precision::nvfp4), 13.10 / 3.76, 0.1);
}

TEST_F(KernelCostTest, Fp8CastsTheInputForwardAndTheResultsGradientBackward) {
  Calibration without = shipped_calibration();
  without.fp8_cast_bytes = 0.0;
  const auto casts = make_kernel_cost(cluster_, elsewhere()),
             none = make_kernel_cost(cluster_, elsewhere(), without);
  const OperatorShape wide = product(4096, 28672, 4096, Precision::fp8);
  const auto elements = [&](Phase phase) {
    const double seconds = casts->operator_s(wide, phase) - none->operator_s(wide, phase);
    return seconds * cluster_.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share /
           shipped_calibration().fp8_cast_bytes;
  };
  EXPECT_NEAR(elements(Phase::forward), 4096.0 * 4096.0, 1.0);
  EXPECT_NEAR(elements(Phase::input_gradient), 4096.0 * 28672.0, 1.0);
  EXPECT_NEAR(elements(Phase::weight_gradient), 0.0, 1.0);
}

// The product behind which GPT-2's GELU stands writes its input beside its output, and reads it for the
// gradient; no kernel of its own reads and writes them.
TEST_F(KernelCostTest, GeluIsComputedByProductsOfThisProjectsRuntime) {
  const ModelSpec gpt2 = models::load_model("gpt2-1.5b"), llama = models::load_model("llama3.2-1b");
  Calibration c = shipped_calibration();
  const double bandwidth = cluster_.device.memory_bandwidth_bytes_per_s * c.bandwidth_share;
  Layout layout;
  layout.precision = Precision::bf16;
  const auto gained_s = [&](const ModelSpec& model, const char* framework, Phase phase) {
    layout.execution = frameworks::load_framework(framework, "test");
    const models::LayerProgram layer = models::layer_program(model, 0, layout, 1024);
    const auto source = cost(layout.execution);
    double apart = 0.0;
    for (const models::Operator& op : layer.operators) apart += source->operator_s(op.shape, phase);
    return apart - source->piece_s(profiler::Piece::layer, phase, layout, layer);
  };
  const double elements = 1024.0 * 6400.0;  // in and out, and in, gradient and gradient
  EXPECT_NEAR(gained_s(gpt2, "mpt", Phase::forward), c.kernel_gap_s + elements * (4.0 - 2.0) / bandwidth,
              1e-9);
  EXPECT_NEAR(gained_s(gpt2, "mpt", Phase::input_gradient),
              c.kernel_gap_s + elements * (6.0 - 2.0) / bandwidth, 1e-9);
  for (const Phase phase : {Phase::forward, Phase::input_gradient}) {
    EXPECT_NEAR(gained_s(llama, "mpt", phase), 0.0, 1e-12);
    EXPECT_NEAR(gained_s(gpt2, "megatron-core", phase), 0.0, 1e-12);
  }
  layout.precision = Precision::fp32;
  EXPECT_NEAR(gained_s(gpt2, "mpt", Phase::forward), 0.0, 1e-12);
}

TEST_F(KernelCostTest, Fp8IsFasterOnlyWhereTheDeviceHasIt) {
  const auto h100 = cost();
  EXPECT_LT(h100->operator_s(product(8192, 8192, 8192, Precision::fp8), Phase::forward),
            0.75 * h100->operator_s(product(8192, 8192, 8192), Phase::forward));
  const ClusterSpec a100 = profiler::load_cluster("dgx-a100:1", std::nullopt);
  const auto older = make_kernel_cost(a100, {});
  EXPECT_EQ(older->operator_s(product(8192, 8192, 8192, Precision::fp8), Phase::forward),
            older->operator_s(product(8192, 8192, 8192), Phase::forward));
}

TEST_F(KernelCostTest, Fp8GainsWhereTheTablesHoldNone) {
  cluster_.device.name = "mine";
  cluster_.device.kernels = "a100-sxm-80gb";
  const auto source = cost();
  const double wide = source->operator_s(product(8192, 8192, 8192), Phase::forward);
  EXPECT_NEAR(wide / source->operator_s(product(8192, 8192, 8192, Precision::fp8), Phase::forward),
              shipped_calibration().fp8_speedup, 0.2 * shipped_calibration().fp8_speedup);
}

TEST_F(KernelCostTest, Fp32IsAsMuchSlowerAsItsPeakIsLower) {
  const auto source = cost();
  const double ratio = source->operator_s(product(4096, 4096, 4096, Precision::fp32), Phase::forward) /
                       source->operator_s(product(4096, 4096, 4096), Phase::forward);
  EXPECT_NEAR(ratio, cluster_.device.bf16_flop_per_s / cluster_.device.fp32_flop_per_s, 1e-9);
}

TEST_F(KernelCostTest, LengthsThatTensorCoresDislikeCostMore) {
  for (const bool is_early : {false, true}) {
    Execution e;
    e.kernels.early_products = is_early;
    const auto source = cost(e);
    const double fine = source->operator_s(product(4096, 4096, 4096), Phase::forward);
    EXPECT_EQ(source->operator_s(product(4096, 4104, 4096), Phase::forward) > 1.1 * fine, is_early);
    EXPECT_GT(source->operator_s(product(4096, 4097, 4096), Phase::forward), 2.5 * fine)
        << "no multiple of 8";
  }
}

TEST_F(KernelCostTest, AttentionKernelsFollowTheirGenerations) {
  Execution first, second, unfused;
  first.kernels.attention = AttentionKernel::flash1;
  second.kernels.attention = AttentionKernel::flash2;
  unfused.kernels.attention = AttentionKernel::unfused;
  for (const int64_t sequence : {2048, 8192}) {
    const auto seconds = [&](const Execution& e, Phase phase) {
      return cost(e)->operator_s(core(sequence), phase);
    };
    EXPECT_LT(seconds({}, Phase::forward), seconds(second, Phase::forward));
    EXPECT_LT(seconds(second, Phase::forward), seconds(first, Phase::forward));
    EXPECT_LT(seconds(first, Phase::forward), seconds(unfused, Phase::forward));
    // Backward: 2.5 times the FLOP at a lower rate.
    EXPECT_GT(seconds({}, Phase::input_gradient), 2.5 * seconds({}, Phase::forward));
  }
  // FlashAttention-2's chart for H100, causal, head size 128, forward: 333 TFLOP/s at 8,192 tokens.
  const double rate = models::forward_flop(core(8192)) / cost(second)->operator_s(core(8192), Phase::forward);
  EXPECT_NEAR(rate / 1e12, 333, 0.1 * 333);
}

// Passes over the scores in 16 bits, 10 of PyTorch's own softmax there and 15 back against 5 and 7 of a fused
// one, and the mask's 10 bytes per place of the square, once for all heads.
TEST_F(KernelCostTest, PlainAttentionPassesItsScoresMoreOften) {
  Execution fused, plain;
  fused.kernels.attention = AttentionKernel::unfused;
  plain.kernels.attention = AttentionKernel::plain;
  const double square = 4096.0 * 4096.0, scores = 32.0 * square;
  const double bytes_per_s =
      cluster_.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share;
  const auto more_bytes = [&](Phase phase) {
    return (cost(plain)->operator_s(core(4096), phase) - cost(fused)->operator_s(core(4096), phase)) *
           bytes_per_s;
  };
  EXPECT_NEAR(more_bytes(Phase::forward), 2.0 * scores * 5.0 + 10.0 * square, 1e-3 * scores);
  EXPECT_NEAR(more_bytes(Phase::input_gradient), 2.0 * scores * 8.0, 1e-3 * scores);
}

// An H20 has a seventh of an H100's tensor cores and is priced by its tables: what no table holds is a share
// of its own peak, and not of that once more.
TEST_F(KernelCostTest, ADeviceWithAnothersTablesIsSlowerOnce) {
  const auto tflops = [&](const char* cluster, const char* framework) {
    cluster_ = profiler::load_cluster(cluster, std::nullopt);
    const auto source = cost(frameworks::load_framework(framework, "test"));
    return models::forward_flop(core(8192)) / source->operator_s(core(8192), Phase::forward) * 1e-12;
  };
  for (const char* framework : {"megatron-core", "fsdp"}) {
    EXPECT_GT(tflops("hgx-h20:1", framework), 0.15 * 148) << framework;
    EXPECT_LT(tflops("hgx-h20:1", framework), 148) << framework;
    EXPECT_GT(tflops("dgx-h100:1", framework), 2.0 * tflops("hgx-h20:1", framework)) << framework;
  }
}

TEST_F(KernelCostTest, CollectivesInsideANodeAreMeasuredAndBetweenNodesFollowTheNetwork) {
  Calibration c = shipped_calibration();
  c.collective_rate = 1.0;
  const auto source = cost({}, c);
  const int64_t bytes = int64_t{512} << 20;
  const double measured =
      *profiler::kernel_tables("h100-sxm-80gb")->collective_s("all_reduce", 8, double(bytes));
  EXPECT_NEAR(source->collective_s(models::CollectiveKind::all_reduce, bytes, {8, 8}), measured, 1e-12);
  const double across = source->collective_s(models::CollectiveKind::all_reduce, bytes, {32, 32});
  EXPECT_GT(across, measured);
  EXPECT_EQ(source->collective_s(models::CollectiveKind::all_reduce, bytes, {1, 1}), 0.0);
  EXPECT_LT(source->overlap_share({32, 32}), source->overlap_share({8, 8}))
      << "network traffic costs compute less";
}

// As in the file of a cluster that has half of the NVLink.
TEST_F(KernelCostTest, MeasuredCollectivesFollowOtherLinksOfTheSameGpu) {
  const int64_t bytes = int64_t{512} << 20;
  const auto seconds = [&] {
    return cost()->collective_s(models::CollectiveKind::all_reduce, bytes, {8, 8});
  };
  const double usual = seconds();
  cluster_.levels.front().bandwidth_bytes_per_s /= 2.0;
  EXPECT_GT(seconds(), 1.7 * usual);
}

TEST_F(KernelCostTest, ADeviceWithoutMeasurementsIsPricedByItsPeaks) {
  ClusterSpec unknown = cluster_;
  unknown.device.name = "another";
  EXPECT_EQ(make_kernel_cost(unknown, {}), nullptr);
  EXPECT_EQ(make_device_cost(unknown, {})->origin().source, "roofline");
  unknown.device.kernels = "h100-sxm-80gb";
  unknown.device.kernel_rate = 0.5;
  const auto half = make_kernel_cost(unknown, {});
  Calibration c = shipped_calibration();
  EXPECT_NEAR(half->operator_s(product(8192, 8192, 8192), Phase::forward) - c.kernel_gap_s,
              2.0 * (cost()->operator_s(product(8192, 8192, 8192), Phase::forward) - c.kernel_gap_s), 1e-9);
}

TEST_F(KernelCostTest, ExpertsCostMoreThanOneProductOfAllTheirRows) {
  OperatorShape experts = product(8192, 4096, 2048);
  experts.kind = OperatorKind::expert_linear;
  experts.batch = 16;
  experts.copy_width = 2048;
  const auto source = cost();
  EXPECT_GT(source->operator_s(experts, Phase::forward),
            source->operator_s(product(8192, 4096, 2048), Phase::forward));
  Execution balanced;
  balanced.traffic.balanced_experts = true;
  EXPECT_LT(cost(balanced)->operator_s(experts, Phase::forward), source->operator_s(experts, Phase::forward));
  // fp8 is faster, less what narrowing the rows takes.
  OperatorShape narrow = experts;
  narrow.precision = Precision::fp8;
  const auto free_casts = [&] {
    Calibration c = shipped_calibration();
    c.fp8_cast_bytes = 0.0;
    return make_kernel_cost(cluster_, {}, c);
  }();
  const double casts_s =
      8192.0 * 2048 * shipped_calibration().fp8_cast_bytes /
      (cluster_.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share);
  EXPECT_NEAR(source->operator_s(narrow, Phase::forward) - free_casts->operator_s(narrow, Phase::forward),
              casts_s, 1e-9);
  const auto faster = [&](int64_t rows) {
    OperatorShape wide = experts;
    narrow.rows = wide.rows = rows;
    return source->operator_s(narrow, Phase::forward) < source->operator_s(wide, Phase::forward);
  };
  EXPECT_TRUE(faster(32768));
  EXPECT_FALSE(faster(2048)) << "sixteen casts of 128 rows take what their products gain";
  narrow.rows = experts.rows;
  Execution one_kernel;
  one_kernel.kernels.fuses_experts = true;
  // Nor has one kernel sixteen starts of a cast and a product. It is as fast as the table's best.
  Calibration best = shipped_calibration();
  best.fp8_cast_bytes = 0.0;
  best.grouped_rate = 1.0;
  EXPECT_NEAR(
      cost(one_kernel)->operator_s(narrow, Phase::forward),
      cost({}, best)->operator_s(narrow, Phase::forward) - 16 * 2 * shipped_calibration().kernel_gap_s, 1e-9);
  // Copies that are sent in the experts' order save passes over memory, and nothing else.
  Execution fused;
  fused.traffic.deduplicates_dispatch = true;
  const double passes = shipped_calibration().permute_passes - shipped_calibration().fused_permute_passes,
               bandwidth =
                   cluster_.device.memory_bandwidth_bytes_per_s * shipped_calibration().bandwidth_share;
  EXPECT_NEAR(source->operator_s(experts, Phase::forward) - cost(fused)->operator_s(experts, Phase::forward),
              8192.0 * 2048 * 2 * passes / bandwidth, 1e-9);
  // In fp8 rows are padded in a copy: read and written once more.
  Execution pads;
  pads.kernels.pads_expert_rows = true;
  EXPECT_EQ(cost(pads)->operator_s(experts, Phase::forward), source->operator_s(experts, Phase::forward));
  EXPECT_NEAR(cost(pads)->operator_s(narrow, Phase::forward) - source->operator_s(narrow, Phase::forward),
              8192.0 * 2048 * 2 * 2 / bandwidth, 1e-9);
}

// Decays and exponentials between small products bind the core of a linear mixer: it is as fast as the units
// beside the tensor cores, in the table's GPUs, others' and those without a table.
TEST_F(KernelCostTest, ACoreOfALinearMixerIsPricedByThePeakOfFp32) {
  OperatorShape s;
  s.kind = OperatorKind::recurrence;
  s.precision = Precision::bf16;
  s.rows = 16384;
  s.inner = 4'000'000;
  s.batch = 9'000'000;
  const double gap = shipped_calibration().kernel_gap_s;
  for (const char* name : {"dgx-h100:1", "dgx-b200:1", "mi300x:1"}) {
    cluster_ = profiler::load_cluster(name, std::nullopt);
    const double forward = cost()->operator_s(s, Phase::forward) - gap;
    EXPECT_NEAR(forward * shipped_calibration().linear_mixer_share * cluster_.device.fp32_flop_per_s,
                16384.0 * 4e6, 16384.0 * 4e6 * 1e-9)
        << name;
    EXPECT_NEAR((cost()->operator_s(s, Phase::input_gradient) - gap) / forward, 2.25, 1e-9) << name;
    cluster_.device.bf16_flop_per_s *= 2.0;
    EXPECT_NEAR(cost()->operator_s(s, Phase::forward) - gap, forward, 1e-9 * forward) << name;
    cluster_.device.fp32_flop_per_s *= 2.0;
    EXPECT_NEAR(cost()->operator_s(s, Phase::forward) - gap, 0.5 * forward, 1e-9 * forward) << name;
  }
}

}  // namespace
}  // namespace mpt::planner
