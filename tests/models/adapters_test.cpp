// SPDX-License-Identifier: Apache-2.0

// Adapters, and the frozen weights below them, against what their sources say of them.

#include <gtest/gtest.h>

#include "frameworks/framework.h"
#include "tests/models/trained.h"

namespace mpt::models {
namespace {

using trained::footprint_of;
using trained::lora;
using trained::one_rank;
using trained::share_of;

// huggingface/peft prints 41,943,040 trainable parameters for Llama 3 8B with rank 16 on all seven products.
// Megatron-Bridge has one adapter for queries, keys and values, and one for both halves of the MLP.
TEST(Adapters, HaveTheParametersThatTheirLibrariesPrint) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.training = lora(16);
  EXPECT_EQ(share_of(model, l).total(), 41'943'040);
  l.execution.edit().kernels.one_adapter_per_product = true;
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
    l.training.edit().frozen = layers;
    l.training.edit().frozen.insert(l.training->frozen.end(), further.begin(), further.end());
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
  l.execution.edit().states.weight_bytes = l.execution.edit().states.gradient_bytes = 2;
  l.execution.edit().states.optimizer_bytes = 8;
  const StageFootprint f = footprint_of(model, l, 512);
  const double tables = 2.0 * double(model.vocab * model.hidden);
  const ParameterShare share = share_of(model, l);
  const double stored = double(share.frozen_bytes + share.scale_bytes);
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
      l.training.edit().frozen_format = format;
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
  l.training.edit().adapter_targets = {AdapterTarget::experts};
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
      EXPECT_NEAR(double(share.frozen_bytes + share.frozen_expert_bytes + share.scale_bytes), bytes,
                  2e-3 * bytes)
          << seen.model;
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
    l.execution.edit().states.nested_scales = nested;
    return double(share_of(model, l).scale_bytes);
  };
  EXPECT_NEAR(frozen(true), 32 * 218'103'808.0 * 0.126953125 / 8.0, 1e3);
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
      if (start >= 0) l.execution.edit().states.whole_at_start = start;
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
    const double whole =
        double(all.frozen_bytes + all.frozen_expert_bytes + all.scale_bytes) + 4.0 * double(all.total());
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
    l.execution.edit().states.narrows_experts = narrows;
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
    l.training.edit().adapter_targets = {AdapterTarget::experts};
    const auto kept = [&](bool merges) {
      l.execution.edit().kept.merges_expert_adapters = merges;
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
  l.training.edit().adapter_targets = {AdapterTarget::experts};
  const auto trained = [&](int64_t factor) {
    l.training.edit().expert_rank_factor = factor;
    int64_t weights = 0;
    for (const Operator& op : layer_program(model, 1, l, 2048).operators)
      weights += op.module == Module::adapter ? op.parameters : 0;
    return weights;
  };
  const int64_t second = 64 * (16 * 1408 + 2048 * 16);
  EXPECT_EQ(trained(1), 64 * (16 * 2048 + 2 * 1408 * 16) + second);
  EXPECT_EQ(trained(2), 64 * (32 * 2048 + 2 * 1408 * 32) + second);
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
  l.execution.edit().kept.adapter_dropout = true;
  const int64_t inputs = int64_t{2048} * 32 * (4096 * 6 + 14336);  // q, k, v, o, gate, up and down
  EXPECT_EQ(footprint_of(model, l).saved_bytes - without.saved_bytes, inputs);
}

}  // namespace
}  // namespace mpt::models
