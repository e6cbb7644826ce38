// SPDX-License-Identifier: Apache-2.0

// Adapters, frozen weights, optimizers, packed sequences and activations in the host's memory, against what
// their sources say of them.

#include <gtest/gtest.h>

#include "models/footprint.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

Layout one_rank(const ModelSpec& model) {
  Layout l;
  l.precision = Precision::bf16;
  l.layers_per_stage = {model.layers.count()};
  return l;
}

Training lora(int64_t rank, FrozenFormat format = FrozenFormat::bf16) {
  Training t;
  t.adapter_rank = rank;
  t.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up, AdapterTarget::down};
  t.frozen_format = format;
  return t;
}

StageFootprint footprint_of(const ModelSpec& model, const Layout& layout, int64_t sequence = 2048) {
  return stage_footprints(model, layout, {1, sequence}).front();
}

ParameterShare share_of(const ModelSpec& model, const Layout& layout) {
  return StagePieces(model, layout, 128).parameters(StageContent{0, model.layers.count(), true, true});
}

// huggingface/peft prints 41,943,040 trainable parameters for Llama 3 8B with rank 16 on all seven products.
// Megatron-Bridge has one adapter for queries, keys and values, and one for both halves of the MLP.
TEST(Adapters, HaveTheParametersThatTheirLibrariesPrint) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.training = lora(16);
  EXPECT_EQ(share_of(model, l).total(), 41'943'040);
  l.execution.kernels.one_adapter_per_product = true;
  const int64_t each = 16 * ((4096 + 6144) + (4096 + 4096) + (4096 + 2 * 14336) + (14336 + 4096));
  EXPECT_EQ(share_of(model, l).total(), 32 * each);
}

TEST(Adapters, AreSharesOfTensorRanks) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.training = lora(16);
  const int64_t whole = share_of(model, l).total();
  l.tensor = 4;
  EXPECT_EQ(share_of(model, l).total() * 4, whole);
}

TEST(Adapters, LeaveFrozenWeightsWithoutGradientsAndStates) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const StageFootprint full = footprint_of(model, l);
  l.training = lora(16);
  const StageFootprint adapted = footprint_of(model, l);
  const int64_t trained = share_of(model, l).total(), all = share_of(model, one_rank(model)).total();
  EXPECT_NEAR(double(adapted.gradient_bytes), 4.0 * double(trained), 1e5);
  EXPECT_NEAR(double(adapted.optimizer_bytes), 12.0 * double(trained), 1e5);
  EXPECT_NEAR(double(adapted.parameter_bytes), 2.0 * double(all + trained), 1e5);
  EXPECT_LT(adapted.saved_bytes, full.saved_bytes) << "inputs of frozen products are kept for nobody";
}

TEST(Adapters, SaveTheWeightGradientsOfFrozenProducts) {
  const ModelSpec model = load_model("llama3-8b");
  const double full = model_flop_per_token(model, 2048),
               adapted = model_flop_per_token(model, 2048, lora(16));
  const auto weights = double(share_of(model, one_rank(model)).total() - model.vocab * model.hidden);
  const auto adapters = double(32 * 16 * ((4096 + 6144) + 2 * 4096 + 2 * (4096 + 14336) + 3 * 4096 + 14336));
  EXPECT_NEAR(adapted, full - 2.0 * weights + 6.0 * adapters, 0.01 * full);
  EXPECT_LT(adapted, 0.72 * full);
}

// QLoRA (arXiv:2305.14314, abstract and section 3): 65 billion weights train on one GPU of 48 GB, where 16
// bits take more than 780 GB; a weight takes 4 bits and 0.127 for its scales.
TEST(Adapters, InFourBitsFitWhereTheirPaperSaysSo) {
  ModelSpec model = load_model("llama2-70b");
  model.layers.change([](LayerKind& kind) {
    kind.attention->kv_heads = 64;
    kind.mlp->ffn_hidden = 22016;
  });
  Layout l = one_rank(model);
  l.recompute = Recompute::full;
  const double all = double(share_of(model, l).total());
  EXPECT_NEAR(all, 65.3e9, 0.5e9);
  l.training = lora(64, FrozenFormat::nf4);
  // Adapters and their gradients in 16 bits, moments in 32 (section 4, and its code).
  l.execution.states.weight_bytes = l.execution.states.gradient_bytes = 2;
  l.execution.states.optimizer_bytes = 8;
  const StageFootprint f = footprint_of(model, l, 512);
  const double tables = 2.0 * double(model.vocab * model.hidden);
  const double stored = double(share_of(model, l).frozen_bytes);
  EXPECT_NEAR(stored, (all - tables) * 4.127 / 8.0 + 2.0 * tables, 2e-3 * stored);
  const double gigabytes = double(f.static_bytes() + f.saved_bytes +
                                  std::max(f.forward_workspace_bytes, f.backward_workspace_bytes)) /
                           1e9;
  EXPECT_LT(gigabytes, 48.0);
  EXPECT_GT(gigabytes, 36.0);
}

TEST(Adapters, OfExpertsAreOneForEachExpert) {
  const ModelSpec model = load_model("mixtral-8x7b");
  Layout l = one_rank(model);
  l.training = lora(8);
  const ParameterShare without = share_of(model, l);
  EXPECT_EQ(without.expert, 0);
  l.training.adapter_targets = {AdapterTarget::experts};
  const ParameterShare share = share_of(model, l);
  EXPECT_EQ(share.dense, 0);
  EXPECT_EQ(share.expert, 32 * 8 * 8 * ((4096 + 2 * 14336) + (14336 + 4096)));
}

TEST(FrozenParts, AloneAreWithoutGradients) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const ParameterShare all = share_of(model, l);
  l.training.frozen = {FrozenPart::embedding, FrozenPart::head};
  const ParameterShare share = share_of(model, l);
  const int64_t tables = 2 * model.vocab * model.hidden;
  EXPECT_EQ(all.total() - share.total(), tables + model.hidden);  // and the last norm
  EXPECT_EQ(share.frozen_bytes, 2 * (tables + model.hidden));
}

// Dettmers et al. 2022 (arXiv:2110.02861): 8 bytes of two moments become 2. Adafactor (arXiv:1804.04235)
// keeps rows and columns of one, momentum and Muon one of 4 bytes.
TEST(Optimizers, KeepWhatTheirPapersSay) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const auto parameters = double(share_of(model, l).total());
  const auto bytes_of = [&](OptimizerKind kind) {
    l.training.optimizer = kind;
    return double(footprint_of(model, l).optimizer_bytes) / parameters;
  };
  EXPECT_NEAR(bytes_of(OptimizerKind::adamw), 12.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::adamw8), 6.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::adafactor), 4.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::sgd), 8.0, 0.01);
  const double tables = 2.0 * double(model.vocab * model.hidden) / parameters;
  EXPECT_NEAR(bytes_of(OptimizerKind::muon), 8.0 + 4.0 * tables, 0.01);
}

// Five steps over a square matrix of width m take 5 m / B of the products of B tokens (Jordan et al. 2024,
// "Muon: an optimizer for hidden layers", section on overhead).
TEST(Optimizers, MuonsStepsTakeTheShareThatItsAuthorsSay) {
  ModelSpec model = load_model("gpt2-124m");
  model.layers.change([](LayerKind& kind) {
    kind.mlp.reset();
    kind.attention->qkv_bias = kind.attention->output_bias = false;
  });
  Layout l = one_rank(model);
  const StagePieces pieces(model, l, 128);
  KindCounts one(1);
  one[0] = 1;
  constexpr double kTokens = 1e6;
  const double width = double(model.hidden), output = 6.0 * kTokens * width * width;
  const double square = 5.0 * width / kTokens * output;                 // of the output projection
  const double wide = 5.0 * (4.0 * 3.0 + 2.0) * width * width * width;  // of queries, keys and values
  EXPECT_NEAR(pieces.orthogonal_flop(one), square + wide, 1e-9 * (square + wide));
}

TEST(Optimizers, GradientsInSixteenBitsTakeHalfTheBytes) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const int64_t wide = footprint_of(model, l).gradient_bytes;
  l.training.bf16_gradients = true;
  EXPECT_NEAR(double(footprint_of(model, l).gradient_bytes), 0.5 * double(wide), 1e3);
}

// Eight sequences in one of eight times the length have the attention of eight.
TEST(Packing, CostsTheAttentionOfItsSequences) {
  const ModelSpec model = load_model("llama3-8b");
  Training packed;
  packed.packed_length = 1024.0;
  EXPECT_DOUBLE_EQ(model_flop_per_token(model, 8192, packed), model_flop_per_token(model, 1024));
  EXPECT_LT(model_flop_per_token(model, 8192, packed), model_flop_per_token(model, 8192));
}

TEST(Packing, RanksWaitForTheOneWithMostAttention) {
  const ModelSpec model = load_model("llama3-8b");
  const auto core_of = [&](double spread, int64_t data) {
    Layout l = one_rank(model);
    l.data = data;
    l.training.packed_length = 1024.0;
    l.training.packed_spread = spread;
    l.training.packed_sequences = 1024;
    double flop = 0.0;
    for (const Operator& op : layer_program(model, 0, l, 8192).operators)
      flop += op.name == "attention.core" ? forward_flop(op.shape) : 0.0;
    return flop;
  };
  EXPECT_EQ(core_of(0.5, 1), core_of(0.0, 1));
  EXPECT_GT(core_of(0.5, 8), 1.5 * core_of(0.0, 8));
  EXPECT_GT(core_of(0.5, 64), core_of(0.5, 8));
}

TEST(Offload, MovesWhatTheNamedModulesKeep) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const LayerProgram kept = layer_program(model, 0, l, 4096);
  l.training.offloaded = {OffloadModule::core_attn, OffloadModule::attn_norm};
  const LayerProgram moved = layer_program(model, 0, l, 4096);
  int64_t bytes = 0;
  for (size_t i = 0; i < kept.operators.size(); ++i) {
    const Operator &before = kept.operators[i], &after = moved.operators[i];
    const bool named = before.name == "attention.core" || before.name == "attention.norm";
    EXPECT_EQ(after.saved_bytes, named ? 0 : before.saved_bytes) << before.name;
    EXPECT_EQ(after.offloaded_bytes, named ? before.saved_bytes : 0) << before.name;
    bytes += after.offloaded_bytes;
  }
  EXPECT_EQ(saved_bytes(kept, Recompute::none) - saved_bytes(moved, Recompute::none), bytes);
  l.training.offloaded.clear();
  const StageFootprint before = footprint_of(model, l, 4096);
  l.training.offloaded = {OffloadModule::core_attn};
  const StageFootprint after = footprint_of(model, l, 4096);
  EXPECT_LT(after.saved_bytes + after.backward_workspace_bytes,
            before.saved_bytes + before.backward_workspace_bytes);
}

}  // namespace
}  // namespace mpt::models
