// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/layout.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "models/zoo.h"
#include "tests/models/two_stages.h"

namespace mpt::models {
namespace {

using frameworks::load_framework;

// Fully sharded weights are cast to 16 bits before they are gathered.
TEST(ExecutionShares, MastersAreGatheredInSixteenBits) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {32};
  layout.data = layout.shard = 8;
  layout.zero = 3;
  layout.execution.edit().states.weight_bytes = 4;
  const auto bytes = double(stage_footprints(model, layout, {8, 4096}).front().parameter_bytes);
  const double parameters = 8.03e9, head = double(model.vocab * model.hidden);
  EXPECT_NEAR(bytes / (4 * parameters / 8 + 2 * head), 1.0, 1e-3);
}

// Between the micro-batches of a pipeline PyTorch keeps the weights of its stage whole, in 16 bits beside the
// masters' share, and whole gradients in fp32.
TEST(ExecutionShares, InAPipelineWhatIsShardedMayStayWhole) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout = two_stages(load_framework("torchtitan", "test"));
  layout.data = layout.shard = 8;
  layout.zero = 3;
  const StageFootprint kept = stage_footprints(model, layout, {64, 4096}).front();
  const double parameters = 32.0 / 2 * 218'112'000 + double(model.vocab * model.hidden);
  EXPECT_NEAR(double(kept.parameter_bytes) / (parameters * (4.0 / 8 + 2)), 1.0, 1e-3);
  EXPECT_NEAR(double(kept.gradient_bytes) / (parameters * 4), 1.0, 1e-3);
  layout.execution.edit().traffic.keeps_gathered_in_pipeline = false;
  const StageFootprint sharded = stage_footprints(model, layout, {64, 4096}).front();
  EXPECT_LT(sharded.parameter_bytes, kept.parameter_bytes / 2);
  EXPECT_LT(sharded.gradient_bytes, kept.gradient_bytes / 2);
  EXPECT_EQ(sharded.optimizer_bytes, kept.optimizer_bytes);
}

// FSDP2 without a reduction for each micro-batch (torch 2.15.0: 4 bytes a weight in fp32, 2 in bf16).
TEST(ExecutionShares, DeferredSumsOfGradientsStayWholeInTheirOwnType) {
  const ModelSpec model = load_model("llama3-8b");
  for (const auto& [framework, bytes] : {std::pair{"automodel", 4.0}, {"transformers-fsdp", 2.0}}) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.execution = load_framework(framework, "test");
    layout.data = layout.shard = 8;
    layout.zero = 3;
    layout.layers_per_stage = {32};
    const StageFootprint shared = stage_footprints(model, layout, {64, 4096}).front();
    layout.execution.edit().traffic.defers_gradient_sums = true;
    const StageFootprint whole = stage_footprints(model, layout, {64, 4096}).front();
    EXPECT_NEAR(double(whole.gradient_bytes) / (8.03e9 * bytes), 1.0, 1e-3) << framework;
    EXPECT_LT(shared.gradient_bytes, whole.gradient_bytes / 2) << framework;
    EXPECT_EQ(shared.parameter_bytes, whole.parameter_bytes) << framework;
  }
}

// transformers' experts are one weight of [experts, ...], whose first dimension FSDP2 cuts (run with a fake
// group: findings/fsdp2_fused_experts.sh): 8 experts on 24 ranks leave one whole expert on each of 8 ranks.
TEST(ExecutionShares, WholeExpertsAreDealtOutAndPadded) {
  const auto states = [](const std::string& name, const char* framework, int64_t shards) {
    Layout layout;
    layout.precision = Precision::bf16;
    layout.execution = load_framework(framework, "test");
    layout.data = layout.shard = shards;
    layout.zero = 3;
    const ModelSpec model = load_model(name);
    layout.layers_per_stage = {model.layers.count()};
    return double(stage_footprints(model, layout, {shards, 4096}).front().optimizer_bytes);
  };
  const double mixtral = 32.0 * 8 * 3 * 4096 * 14336, qwen = 48.0 * 128 * 3 * 2048 * 768;
  EXPECT_NEAR((states("mixtral-8x7b", "transformers-fsdp", 24) - states("mixtral-8x7b", "torchtitan", 24)) /
                  (8 * mixtral * (1.0 / 8 - 1.0 / 24)),
              1.0, 1e-3);
  EXPECT_EQ(states("qwen3-30b-a3b", "transformers-fsdp", 48), states("qwen3-30b-a3b", "torchtitan", 48))
      << "torchtitan cuts another dimension only where there are more ranks than experts";
  EXPECT_NEAR((states("qwen3-30b-a3b", "torchtitan", 48) - states("qwen3-30b-a3b", "torchtitan", 64)) /
                  (8 * qwen * (3.0 / 128 - 2.0 / 128)),
              1.0, 0.05)
      << "three experts on a rank, or two; the rest is that of other weights";
  EXPECT_EQ(states("mixtral-8x7b", "pytorch", 24), states("mixtral-8x7b", "transformers-fsdp", 24))
      << "24 divides neither 8 nor 4,096 nor 14,336";
  EXPECT_NEAR(states("mixtral-8x7b", "transformers-fsdp", 64) / states("mixtral-8x7b", "pytorch", 64), 8.0,
              0.5)
      << "the exported file cuts 14,336 in 64";
  EXPECT_NEAR(states("mixtral-8x7b", "transformers-fsdp", 8) / states("mixtral-8x7b", "torchtitan", 8), 1.0,
              1e-3);
}

// FSDP2 cuts the first dimension of each weight (torch 2.15.0, _fsdp_param.py, padded_sharded_size): rows of
// the weights of a dense model with gates, as transformers has them, summed up here.
TEST(ExecutionShares, SharesOfWholeRowsArePadded) {
  const auto share = [](const ModelSpec& model, int64_t shards) {
    const auto part = [&](int64_t rows, int64_t columns) { return (rows + shards - 1) / shards * columns; };
    const Attention& a = model.attention();
    const int64_t hidden = model.hidden, ffn = model.mlp().ffn_hidden, queries = a.heads * a.head_dim;
    const int64_t layer = part(queries, hidden) + 2 * part(a.kv_heads * a.head_dim, hidden) +
                          part(hidden, queries) + 2 * part(ffn, hidden) + part(hidden, ffn) +
                          2 * part(hidden, 1);
    return model.layers.count() * layer + part(hidden, 1) +
           (model.tied_embeddings ? 1 : 2) * part(model.vocab, hidden);
  };
  const auto moments = [](const ModelSpec& model, int64_t shards, bool whole_rows) {
    Layout layout;
    layout.layers_per_stage = {model.layers.count()};
    layout.data = layout.shard = shards;
    layout.zero = 3;
    layout.execution.edit().states.shards_whole_rows = whole_rows;
    return double(stage_footprints(model, layout, {shards, 128}).front().optimizer_bytes);
  };
  for (const char* name : {"llama3-8b", "llama3.2-1b", "mistral-7b"}) {
    const ModelSpec model = load_model(name);
    for (const int64_t shards : {8, 24, 96, 768, 1536}) {
      EXPECT_NEAR(moments(model, shards, true), double(8 * share(model, shards)), 4096) << name << shards;
    }
  }
  // 1,024 rows of keys over 1,536 ranks are as many rows of one rank as over 1,024.
  const ModelSpec model = load_model("llama3-8b");
  EXPECT_GT(moments(model, 1536, true), 1.09 * moments(model, 1536, false));
  EXPECT_EQ(moments(model, 256, true), moments(model, 256, false));
}

TEST(ExecutionShares, PaddingOfRowsIsMovedToo) {
  const ModelSpec model = load_model("llama3-8b");
  Layout layout;
  layout.layers_per_stage = {32};
  layout.data = layout.shard = 768;
  layout.zero = 3;
  layout.execution.edit().states.shards_whole_rows = true;
  const StagePieces pieces(model, layout, 128);
  const StageContent all{0, 32, true, true};
  const KindCounts layers = pieces.kinds().count(0, 32);
  const ParameterShare share = pieces.parameters(all);
  const int64_t each = (1536 - 1024) * 4096 * 2 + (4608 - 4096) * 4096 * 2 + (14592 - 14336) * 4096 * 2 +
                       (4608 - 4096) * 14336 + 2 * (4608 - 4096);
  const int64_t ends = 2 * (128256 % 768 == 0 ? 0 : 4096 * (768 - 128256 % 768)) + (4608 - 4096);
  EXPECT_EQ(pieces.padded(share, layout, layers, true, true).dense - share.dense, 32 * each + ends);
  layout.shard = 256;
  EXPECT_EQ(pieces.padded(share, layout, layers, true, true).dense - share.dense, 0);
}

}  // namespace
}  // namespace mpt::models
