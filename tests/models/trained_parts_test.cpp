// SPDX-License-Identifier: Apache-2.0

// Adapters, frozen weights, optimizers, packed sequences and activations in the host's memory, against what
// their sources say of them.

#include <gtest/gtest.h>

#include "frameworks/framework.h"
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

// PEFT trains a copy of such a module, and keeps the loaded one (peft/utils/other.py, ModulesToSaveWrapper).
TEST(Adapters, StandBesideModulesThatAreTrainedWhole) {
  const ModelSpec model = load_model("llama3-8b");
  const int64_t table = model.vocab * model.hidden, last_norm = model.hidden, adapters = 41'943'040;
  const std::vector<FrozenPart> layers{FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts};
  const auto with = [&](FrozenFormat format, std::vector<FrozenPart> further) {
    Layout l = one_rank(model);
    l.training = lora(16, format);
    l.training.frozen = layers;
    l.training.frozen.insert(l.training.frozen.end(), further.begin(), further.end());
    return share_of(model, l);
  };
  for (const FrozenFormat format : {FrozenFormat::bf16, FrozenFormat::nf4}) {
    Layout usual = one_rank(model);
    usual.training = lora(16, format);
    const int64_t stored = share_of(model, usual).frozen_bytes;
    EXPECT_EQ(with(format, {}).total(), adapters + 2 * table + last_norm);
    EXPECT_EQ(with(format, {FrozenPart::head}).total(), adapters + table);
    EXPECT_EQ(with(format, {FrozenPart::embedding}).total(), adapters + table + last_norm);
    EXPECT_EQ(with(format, {FrozenPart::embedding, FrozenPart::head}).total(), adapters);
    EXPECT_EQ(with(format, {}).frozen_bytes, stored) << "loaded weights stay beside their copies";
    EXPECT_EQ(with(format, {FrozenPart::head}).frozen_bytes, stored);
  }
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

// MatMul4Bit of bitsandbytes (autograd/_functions.py) has one weight in 16 bits at a time, in both passes.
TEST(Adapters, OverFewBitsHaveOneWeightInSixteen) {
  for (const auto& [name, largest] :
       {std::pair{"llama2-70b", 8192.0 * 28672.0}, {"llama3-8b", 4096.0 * 14336.0}})
    for (const FrozenFormat format : {FrozenFormat::nf4, FrozenFormat::int8}) {
      const ModelSpec model = load_model(name);
      Layout l = one_rank(model);
      l.recompute = Recompute::full;
      l.training = lora(16);
      const StageFootprint wide = footprint_of(model, l, 16);
      l.training.frozen_format = format;
      const StageFootprint narrow = footprint_of(model, l, 16);
      const auto more = double(narrow.forward_workspace_bytes - wide.forward_workspace_bytes);
      const auto backward = double(narrow.backward_workspace_bytes - wide.backward_workspace_bytes);
      EXPECT_NEAR(more, 2.0 * largest, 0.2 * largest) << name;
      EXPECT_NEAR(backward, 2.0 * largest, 0.2 * largest) << name;
    }
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

// replace_with_bnb_linear of transformers 5.24.0 on the meta device, by the sizes of the layers that became
// Linear4bit. Experts are two stacked weights of a layer, and routers and norms are no linear layers.
TEST(Adapters, OverFourBitsLeaveStackedExpertsInSixteen) {
  struct Seen {
    const char* model;
    double all, in_4_bits;
  };
  for (const Seen& seen : {Seen{"qwen3-30b-a3b", 30'532'122'624.0, 905'969'664.0},
                           {"mixtral-8x7b", 46'702'792'704.0, 32 * 41'943'040.0},
                           {"llama3-8b", 8'030'261'248.0, 32 * 218'103'808.0}}) {
    const ModelSpec model = load_model(seen.model);
    for (const char* framework : {"transformers-fsdp", "transformers-deepspeed", "deepspeed", "automodel"}) {
      Layout l = one_rank(model);
      l.execution = frameworks::load_framework(framework, "test");
      l.training = lora(16, FrozenFormat::nf4);
      const ParameterShare share = share_of(model, l);
      const double bytes = 2.0 * (seen.all - seen.in_4_bits) + seen.in_4_bits * 4.127 / 8.0;
      EXPECT_NEAR(double(share.frozen_bytes + share.frozen_expert_bytes), bytes, 2e-3 * bytes) << seen.model;
    }
  }
}

// bitsandbytes 0.50.2, functional.quantize_4bit of a matrix of 1024 x 1024 in bf16: 4.126953 bits a weight
// with compress_statistics, 4.5 without.
TEST(Adapters, OverFourBitsHaveScalesInThirtyTwoUnlessTheseAreQuantisedAgain) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.training = lora(16, FrozenFormat::nf4);
  const auto frozen = [&](bool nested) {
    l.execution.states.nested_scales = nested;
    return double(share_of(model, l).frozen_bytes);
  };
  EXPECT_NEAR(frozen(false) - frozen(true), 32 * 218'103'808.0 * (4.5 - 4.126953125) / 8.0, 1e3);
}

// As findings/four_bit_weights_are_whole_before_they_are_sharded.sh counts on two ranks: all weights and half
// of them by FSDP2 of accelerate, all of them by DeepSpeed and AutoModel; shares alone where a loader maps
// them.
TEST(Adapters, OverFewBitsAreWholeOnEachDeviceBeforeTheyAreSharded) {
  for (const auto& [name, count] : {std::pair{"llama3-70b", 2}, {"qwen3-30b-a3b", 2}, {"llama3-70b", 64}}) {
    const int64_t ranks = count;
    const ModelSpec model = load_model(name);
    const auto peak = [&](const char* framework, FrozenFormat format, int64_t start) {
      Layout l = one_rank(model);
      l.execution = frameworks::load_framework(framework, "test");
      if (start >= 0) l.execution.states.whole_at_start = start;
      l.data = l.shard = ranks;
      l.zero = 3;
      l.recompute = Recompute::full;
      l.training = lora(16, format);
      const StageFootprint f = footprint_of(model, l, 512);
      return double(f.static_bytes() + f.saved_bytes +
                    std::max(f.forward_workspace_bytes, f.backward_workspace_bytes));
    };
    Layout l = one_rank(model);
    l.execution = frameworks::load_framework("transformers-fsdp", "test");
    l.training = lora(16, FrozenFormat::nf4);
    const ParameterShare all = share_of(model, l);
    const double whole = double(all.frozen_bytes + all.frozen_expert_bytes) + 4.0 * double(all.total());
    EXPECT_NEAR(peak("transformers-fsdp", FrozenFormat::nf4, -1), whole * (1.0 + 1.0 / ranks), 0.02 * whole)
        << name;
    for (const char* framework : {"deepspeed", "transformers-deepspeed", "automodel"})
      EXPECT_NEAR(peak(framework, FrozenFormat::nf4, -1), whole, 0.03 * whole) << framework << name;
    EXPECT_LT(peak("transformers-fsdp", FrozenFormat::nf4, 0), 0.8 * whole);
    EXPECT_EQ(peak("transformers-fsdp", FrozenFormat::bf16, -1),
              peak("transformers-fsdp", FrozenFormat::bf16, 0))
        << "16 bits come from the host";
  }
}

// A layer's backward holds gradients of its weights until they are reduced: of trained ones alone.
TEST(Adapters, FrozenWeightsLeaveNoGradientsInALayersBackward) {
  for (const char* name : {"llama2-7b", "llama2-70b"}) {
    const ModelSpec model = load_model(name);
    const auto backward = [&](int64_t rank) {
      Layout l = one_rank(model);
      l.execution = frameworks::load_framework("transformers-fsdp", "test");
      l.data = l.shard = 8;
      l.zero = 3;
      l.recompute = Recompute::full;
      if (rank > 0) l.training = lora(rank);
      return double(footprint_of(model, l, 64).backward_workspace_bytes);
    };
    const double layer = double(share_of(model, one_rank(model)).total()) / double(model.layers.count());
    EXPECT_GT(backward(0) - backward(1), 1.8 * layer) << name;
  }
}

TEST(Adapters, OverFourBitsWidenNoExpertThatIsStoredInSixteen) {
  const ModelSpec model = load_model("deepseek-v3");
  Layout l = one_rank(model);
  l.training = lora(16, FrozenFormat::nf4);
  const auto widened = [&](bool narrows) {
    l.execution.states.narrows_experts = narrows;
    int64_t weights = 0;
    for (const Operator& op : layer_program(model, 60, l, 2048).operators)
      weights += op.module == Module::widen ? op.shape.rows * op.shape.columns : 0;
    return weights;
  };
  EXPECT_EQ(widened(true) - widened(false), int64_t{256} * 3 * 7168 * 2048)
      << "those of the shared expert are narrow";
  EXPECT_GT(widened(false), 3 * 7168 * 2048);
}

// peft 0.21.2 on two layers of a small Qwen3-MoE in bf16: beside the inputs of the grouped products exactly
// the bytes of all experts wait for backward. Megatron-Bridge's adapters keep their own products' inputs.
TEST(Adapters, OfExpertsKeepTheirSumWithAllExperts) {
  for (const char* name : {"qwen3-30b-a3b", "mixtral-8x7b", "olmoe-1b-7b"}) {
    const ModelSpec model = load_model(name);
    Layout l = one_rank(model);
    l.training = lora(8);
    l.training.adapter_targets = {AdapterTarget::experts};
    const auto kept = [&](bool merges) {
      l.execution.kept.merges_expert_adapters = merges;
      return saved_bytes(layer_program(model, 0, l, 2048), Recompute::none);
    };
    const MixtureOfExperts& e = *model.moe();
    const int64_t experts = 2 * e.experts * 3 * model.hidden * e.expert.ffn_hidden;
    EXPECT_EQ(kept(true) - kept(false), experts - 2 * 2 * 2048 * e.experts_per_token * 8) << name;
    EXPECT_TRUE(frameworks::load_framework("transformers-fsdp", "test").kept.merges_expert_adapters);
    EXPECT_FALSE(frameworks::load_framework("megatron-bridge", "test").kept.merges_expert_adapters);
  }
}

// PEFT counted on DeepSeek-V2-Lite at rank 16: rank 32 on the first product of 64 experts, 16 on the second.
TEST(Adapters, OfExpertsMayHaveTwiceTheRankOnTheFirstProduct) {
  const ModelSpec model = load_model("deepseek-v2-lite");
  Layout l = one_rank(model);
  l.training = lora(16);
  l.training.adapter_targets = {AdapterTarget::experts};
  const auto trained = [&](int64_t factor) {
    l.training.expert_rank_factor = factor;
    int64_t weights = 0;
    for (const Operator& op : layer_program(model, 1, l, 2048).operators)
      weights += op.module == Module::adapter ? op.parameters : 0;
    return weights;
  };
  const int64_t second = 64 * (16 * 1408 + 2048 * 16);
  EXPECT_EQ(trained(1), 64 * (16 * 2048 + 2 * 1408 * 16) + second);
  EXPECT_EQ(trained(2), 64 * (32 * 2048 + 2 * 1408 * 32) + second);
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
  EXPECT_NEAR(bytes_of(OptimizerKind::adamw8), 6.0 + 2 * 4.0 / 256, 0.001) << "and a scale for each block";
  EXPECT_NEAR(bytes_of(OptimizerKind::adafactor), 4.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::sgd), 8.0, 0.01);
  const double tables = 2.0 * double(model.vocab * model.hidden) / parameters;
  EXPECT_NEAR(bytes_of(OptimizerKind::muon), 8.0 + 4.0 * tables, 0.01);
}

// torchao 0.18.0, AdamW8bit on fully_shard weights: the embedding of GPT-2 XL on 8 ranks has 6,283 rows on
// ranks 0 to 6, whose weights are no multiple of 256. Their moments stay in fp32: 57 MiB more than 8 bits.
TEST(Optimizers, InEightBitsStayWideOnSharesThatAreNoBlocks) {
  const auto wide_bytes = [](const char* name, int64_t ranks, int64_t block = 256) {
    const ModelSpec model = load_model(name);
    Layout l = one_rank(model);
    l.training.optimizer = OptimizerKind::adamw8;
    l.zero = 3;
    l.data = l.shard = ranks;
    l.execution.states.narrow_moment_block = 1;
    const int64_t narrow = footprint_of(model, l).optimizer_bytes;
    l.execution.states.narrow_moment_block = block;
    return double(footprint_of(model, l).optimizer_bytes - narrow);
  };
  EXPECT_NEAR(wide_bytes("gpt2-1.5b", 8), 6283.0 * 1600.0 * 6.0, 1.5e6) << "and vectors";
  EXPECT_LT(wide_bytes("llama3-8b", 64), 1e5) << "rows of multiples of 256: vectors alone";
  const double falcon = 32.0 * 142.0 * 4544.0 * 6.0;
  EXPECT_NEAR(wide_bytes("falcon-7b", 128), falcon, 0.03 * falcon) << "142 of 18,176 rows of 4,544";
  EXPECT_LT(wide_bytes("falcon-7b", 8), 0.1 * falcon) << "2,272 of them are blocks";
  EXPECT_GT(wide_bytes("qwen2.5-0.5b", 128), 0.2 * 0.36e9 / 128.0 * 6.0) << "7 rows of 896";
  EXPECT_EQ(wide_bytes("llama3-8b", 64, 1), 0.0);
}

// The Trainer leaves the moments of each nn.Embedding to fp32 where bitsandbytes has them in 8 bits
// (trainer.py of transformers 5.24.0, register_module_override), 8 bytes of a weight instead of 2.
TEST(Optimizers, InEightBitsLeaveTablesWide) {
  for (const auto& [name, tables] :
       {std::pair{"qwen2.5-7b", 152'064 * 3'584}, {"qwen2.5-0.5b", 151'936 * 896}}) {
    const ModelSpec model = load_model(name);
    Layout l = one_rank(model);
    l.execution = frameworks::load_framework("transformers-ddp", "test");
    l.training.optimizer = OptimizerKind::adamw8;
    const int64_t wide = footprint_of(model, l).optimizer_bytes;
    l.execution.states.wide_table_moments = false;
    EXPECT_NEAR(double(wide - footprint_of(model, l).optimizer_bytes), 6.0 * double(tables), 1e4) << name;
  }
  EXPECT_FALSE(frameworks::load_framework("transformers-fsdp", "test").states.wide_table_moments)
      << "torchao";
}

// NeMo AutoModel's moments have the type of the weights, bf16.
TEST(Optimizers, OfNarrowStatesHaveNoFewerBytesThanTheyNeed) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.execution.states.optimizer_bytes = 4;
  const auto parameters = double(share_of(model, l).total());
  for (const auto& [kind, bytes] : {std::pair{OptimizerKind::adamw8, 2.0 + 8.0 / 256},
                                    {OptimizerKind::sgd, 2.0},
                                    {OptimizerKind::adafactor, 0.0}}) {
    l.training.optimizer = kind;
    EXPECT_NEAR(double(footprint_of(model, l).optimizer_bytes) / parameters, bytes, 0.001) << enum_name(kind);
  }
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

// CPUOffloadPolicy of FSDP2 (torch 2.15.0, _fsdp_param.py): shares of weights and gradients, and moments,
// wait in the host's memory. The device has the piece at work.
TEST(Offload, OfWeightsLeavesThePieceAtWork) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.data = l.shard = 8;
  l.zero = 3;
  l.recompute = Recompute::full;
  StateBytes& states = l.execution.states;
  states.weight_bytes = 4;
  states.optimizer_bytes = 8;
  states.offloads_gradients = states.offloads_weights = true;
  const double count = double(share_of(model, l).total());
  const StageFootprint kept = footprint_of(model, l);
  l.offload_optimizer = true;
  const StageFootprint left = footprint_of(model, l);
  EXPECT_NEAR(double(kept.parameter_bytes - left.parameter_bytes), 4.0 * count / 8.0, 1e-3 * count);
  EXPECT_EQ(left.optimizer_bytes, 0);
  const int64_t head = (model.vocab + 1) * model.hidden;
  EXPECT_NEAR(double(left.parameter_bytes), 2.0 * double(head), 1e-2 * double(head)) << "in 16 bits";
  EXPECT_NEAR(double(host_state_bytes(model, l, {8, 2048}).front()), (4.0 + 4.0 + 8.0) * count / 8.0,
              2e-3 * 16.0 * count / 8.0);
  EXPECT_LE(least_state_bytes(l, share_of(model, l)), left.parameter_bytes);
  l.training = lora(16, FrozenFormat::nf4);
  EXPECT_LT(footprint_of(model, l).parameter_bytes, kept.parameter_bytes) << "frozen ones, too";
}

// Without resharding after forward (reshard() of torch 2.15.0, _fsdp_param_group.py), what was gathered stays
// on the device until the layer's backward, frozen or not, wherever the shares wait.
TEST(Offload, OfWeightsLeavesWhatStaysGathered) {
  const ModelSpec model = load_model("llama3-8b");
  for (const FrozenFormat format : {FrozenFormat::bf16, FrozenFormat::nf4}) {
    Layout l = one_rank(model);
    l.data = l.shard = 8;
    l.zero = 2;
    l.recompute = Recompute::full;
    l.training = lora(16, format);
    StateBytes& states = l.execution.states;
    states.weight_bytes = 4;
    states.optimizer_bytes = 8;
    states.offloads_gradients = states.offloads_weights = true;
    const ParameterShare share = share_of(model, l);
    const auto gathered = double(share.frozen_bytes) + 2.0 * double(share.total());
    const StageFootprint kept = footprint_of(model, l);
    l.offload_optimizer = true;
    const StageFootprint left = footprint_of(model, l);
    EXPECT_NEAR(double(left.parameter_bytes), gathered, 1e-3 * gathered);
    const double shares = (double(share.frozen_bytes) + 4.0 * double(share.total())) / 8.0;
    EXPECT_NEAR(double(kept.parameter_bytes - left.parameter_bytes), shares, 1e-2 * shares);
    const double on_host = shares + (4.0 + 8.0) * double(share.total()) / 8.0;
    EXPECT_NEAR(double(host_state_bytes(model, l, {8, 2048}).front()), on_host, 1e-2 * on_host)
        << "the host has each share once, with its gradient and moments";
  }
}

// What DeepSpeed 0.19.8 has of a weight in the host's memory, counted on CPU processes: masters and gradients
// in fp32, two moments, and new weights in 16 bits (ZeRO 1 and 2) or sums of gradients (ZeRO 3). Megatron's
// HybridDeviceOptimizer copies gradients, too.
TEST(Offload, LeavesGradientsInTheHostsMemory) {
  const ModelSpec model = load_model("llama3-8b");
  const auto bytes_of = [&](const char* framework, int64_t zero, int64_t gradient, bool weights = false) {
    Layout l = one_rank(model);
    l.execution = frameworks::load_framework(framework, "test");
    l.data = l.shard = 8;
    l.zero = zero;
    l.offload_optimizer = true;
    l.execution.states.gradient_bytes = gradient;
    l.execution.states.offloads_weights |= weights;
    const auto bytes = double(host_state_bytes(model, l, {8, 2048}).front());
    return bytes / (double(share_of(model, l).total()) / 8.0);
  };
  for (const char* framework : {"deepspeed", "transformers-deepspeed"}) {
    EXPECT_NEAR(bytes_of(framework, 1, 2), 18.0, 0.01) << framework;
    EXPECT_NEAR(bytes_of(framework, 2, 2), 20.0, 0.01) << framework;
    EXPECT_NEAR(bytes_of(framework, 2, 4), 18.0, 0.01) << framework << ", whose device has sums in fp32";
    EXPECT_NEAR(bytes_of(framework, 3, 2), 18.0, 0.01) << framework;
    EXPECT_NEAR(bytes_of(framework, 3, 4), 20.0, 0.01) << framework;
    EXPECT_NEAR(bytes_of(framework, 3, 2, true), 20.0, 0.01) << framework << ", offload_param";
  }
  EXPECT_NEAR(bytes_of("megatron-core", 1, 4), 16.0, 0.01);
  EXPECT_NEAR(bytes_of("torchtitan", 3, 4), 16.0, 0.02) << "weights, gradients and moments in fp32";
}

// OffloadActivations of trl 1.16.0: what layers keep, or where they recompute their inputs.
TEST(Offload, OfAllThatLayersKeep) {
  const ModelSpec model = load_model("llama3-8b");
  for (const Recompute recompute : {Recompute::none, Recompute::full}) {
    Layout l = one_rank(model);
    l.recompute = recompute;
    const StageFootprint kept = footprint_of(model, l);
    l.execution.kept.waits_on_host = true;
    const StageFootprint left = footprint_of(model, l);
    const int64_t layer = (kept.saved_bytes - left.saved_bytes) / model.layers.count();
    EXPECT_GE(layer, 2048 * model.hidden * 2) << "at least its input";
    EXPECT_GE(left.backward_workspace_bytes, layer) << "the layer at work has what it kept";
    EXPECT_LT(left.saved_bytes + left.backward_workspace_bytes,
              kept.saved_bytes + kept.backward_workspace_bytes);
  }
}

// bitsandbytes 0.50.2: 8 bits of each weight, and a scale of 32 bits of each row, which counts as nothing.
TEST(Adapters, OverEightBitsHaveAByteOfEachWeight) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const auto all = double(share_of(model, l).total());
  l.training = lora(16, FrozenFormat::int8);
  const double tables = 2.0 * double(model.vocab * model.hidden);
  EXPECT_NEAR(double(share_of(model, l).frozen_bytes), all - tables + 2.0 * tables, 1e-3 * all);
}

TEST(Adapters, KeepTheMasksOfTheirDropout) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.training = lora(16);
  const StageFootprint without = footprint_of(model, l);
  l.execution.kept.adapter_dropout = true;
  const int64_t inputs = int64_t{2048} * 32 * (4096 * 6 + 14336);  // q, k, v, o, gate, up and down
  EXPECT_EQ(footprint_of(model, l).saved_bytes - without.saved_bytes, inputs);
}

// torchao 0.18.0, saved by a linear layer of 512 x 256 in bf16 on 128 rows: in int8 and int4 18.6 bytes of
// each weight and 6 of each input, in mxfp4 0.53 of both.
TEST(QuantisationAware, ProductsKeepWhatTheyRound) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const StageFootprint plain = footprint_of(model, l);
  l.execution.kept.rounded_weight_bytes = 19;
  const int64_t products =
      share_of(model, l).total() - model.vocab * model.hidden;  // all but the token table
  const auto weights = double(footprint_of(model, l).saved_bytes - plain.saved_bytes);
  EXPECT_NEAR(weights, 19.0 * double(products), 1e-3 * weights);
  l.execution.kept.rounded_weight_bytes = 0;
  l.execution.kept.rounded_input_bytes = 6;
  const int64_t inputs =
      int64_t{2048} * (32 * (4096 + 4096 + 4096 + 14336) + 4096);  // qkv, output, up, down; head
  EXPECT_EQ(footprint_of(model, l).saved_bytes - plain.saved_bytes, 6 * inputs);
}

}  // namespace
}  // namespace mpt::models
