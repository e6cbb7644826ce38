// SPDX-License-Identifier: Apache-2.0

// Frozen parts, optimizers, packed sequences and activations in the host's memory, against what their sources
// say of them.

#include <gtest/gtest.h>

#include "frameworks/framework.h"
#include "tests/models/trained.h"

namespace mpt::models {
namespace {

using trained::footprint_of;
using trained::lora;
using trained::one_rank;
using trained::share_of;

TEST(FrozenParts, AloneAreWithoutGradients) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const ParameterShare all = share_of(model, l);
  l.training.edit().frozen = {FrozenPart::embedding, FrozenPart::head};
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
    l.training.edit().optimizer = kind;
    return double(footprint_of(model, l).optimizer_bytes) / parameters;
  };
  EXPECT_NEAR(bytes_of(OptimizerKind::adamw), 12.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::adamw8), 6.0 + 2 * 4.0 / 256, 0.001) << "and a scale for each block";
  EXPECT_NEAR(bytes_of(OptimizerKind::adafactor), 4.0, 0.01);
  EXPECT_NEAR(bytes_of(OptimizerKind::sgd), 8.0, 0.01);
  const double tables = 2.0 * double(model.vocab * model.hidden) / parameters;
  EXPECT_NEAR(bytes_of(OptimizerKind::muon), 8.0 + 4.0 * tables, 0.01);
}

// Counted on 2 ranks: 196,608 numbers for as many weights
// (findings/deepspeed_zero_gives_adafactor_whole_second_moments.sh).
TEST(Optimizers, AdafactorFactorsNothingOfFlatRows) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const auto parameters = double(share_of(model, l).total());
  l.training.edit().optimizer = OptimizerKind::adafactor;
  l.execution.edit().states.flattens_states = true;
  EXPECT_NEAR(double(footprint_of(model, l).optimizer_bytes) / parameters, 4.0, 0.01) << "masters alone";
  l.data = l.shard = 2;
  for (const int64_t zero : {1, 2, 3}) {
    l.zero = zero;
    EXPECT_NEAR(double(footprint_of(model, l).optimizer_bytes) / parameters, (4.0 + 4.0) / 2, 0.01) << zero;
    l.training.edit().optimizer = OptimizerKind::adamw;
    EXPECT_NEAR(double(footprint_of(model, l).optimizer_bytes) / parameters, (4.0 + 8.0) / 2, 0.01) << zero;
    l.training.edit().optimizer = OptimizerKind::adafactor;
  }
}

// torchao 0.18.0, AdamW8bit on fully_shard weights: the embedding of GPT-2 XL on 8 ranks has 6,283 rows on
// ranks 0 to 6, whose weights are no multiple of 256. Their moments stay in fp32: 57 MiB more than 8 bits.
TEST(Optimizers, InEightBitsStayWideOnSharesThatAreNoBlocks) {
  const auto wide_bytes = [](const char* name, int64_t ranks, int64_t block = 256) {
    const ModelSpec model = load_model(name);
    Layout l = one_rank(model);
    l.training.edit().optimizer = OptimizerKind::adamw8;
    l.zero = 3;
    l.data = l.shard = ranks;
    l.execution.edit().states.narrow_moment_block = 1;
    const int64_t narrow = footprint_of(model, l).optimizer_bytes;
    l.execution.edit().states.narrow_moment_block = block;
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
    l.training.edit().optimizer = OptimizerKind::adamw8;
    const int64_t wide = footprint_of(model, l).optimizer_bytes;
    l.execution.edit().states.wide_table_moments = false;
    EXPECT_NEAR(double(wide - footprint_of(model, l).optimizer_bytes), 6.0 * double(tables), 1e4) << name;
  }
  EXPECT_FALSE(frameworks::load_framework("transformers-fsdp", "test").states.wide_table_moments)
      << "torchao";
}

// NeMo AutoModel's moments have the type of the weights, bf16.
TEST(Optimizers, OfNarrowStatesHaveNoFewerBytesThanTheyNeed) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.execution.edit().states.optimizer_bytes = 4;
  const auto parameters = double(share_of(model, l).total());
  for (const auto& [kind, bytes] : {std::pair{OptimizerKind::adamw8, 2.0 + 8.0 / 256},
                                    {OptimizerKind::sgd, 2.0},
                                    {OptimizerKind::adafactor, 0.0}}) {
    l.training.edit().optimizer = kind;
    EXPECT_NEAR(double(footprint_of(model, l).optimizer_bytes) / parameters, bytes, 0.001) << enum_name(kind);
  }
}

// DDP's buckets are no moments: bitsandbytes has 2 bytes of a weight there, in whatever type weights are.
TEST(Optimizers, OfNarrowWeightsBesideBucketsHaveTheirMomentsAlone) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  l.execution.edit().states.optimizer_bytes = 6;
  l.execution.edit().states.bucket_bytes = 2;
  const auto parameters = double(share_of(model, l).total());
  for (const int64_t ranks : {1, 8}) {
    l.data = ranks;
    const double bucket = ranks > 1 ? 2.0 : 0.0;
    for (const auto& [kind, moments] : {std::pair{OptimizerKind::adamw, 4.0},
                                        {OptimizerKind::adamw8, 2.0 + 8.0 / 256},
                                        {OptimizerKind::sgd, 2.0},
                                        {OptimizerKind::adafactor, 0.0}}) {
      l.training.edit().optimizer = kind;
      const double each = double(footprint_of(model, l).optimizer_bytes) / parameters;
      EXPECT_NEAR(each, bucket + moments, 0.001) << enum_name(kind) << ranks;
    }
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
  l.training.edit().bf16_gradients = true;
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
    l.training.edit().packed_length = 1024.0;
    l.training.edit().packed_spread = spread;
    l.training.edit().packed_sequences = 1024;
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
  l.training.edit().offloaded = {OffloadModule::core_attn, OffloadModule::attn_norm};
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
  l.training.edit().offloaded.clear();
  const StageFootprint before = footprint_of(model, l, 4096);
  l.training.edit().offloaded = {OffloadModule::core_attn};
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
  StateBytes& states = l.execution.edit().states;
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
    StateBytes& states = l.execution.edit().states;
    states.weight_bytes = 4;
    states.optimizer_bytes = 8;
    states.offloads_gradients = states.offloads_weights = true;
    const ParameterShare share = share_of(model, l);
    const auto gathered = double(share.frozen_bytes + share.scale_bytes) + 2.0 * double(share.total());
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
    l.execution.edit().states.gradient_bytes = gradient;
    l.execution.edit().states.offloads_weights |= weights;
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
    l.execution.edit().kept.waits_on_host = true;
    const StageFootprint left = footprint_of(model, l);
    const int64_t layer = (kept.saved_bytes - left.saved_bytes) / model.layers.count();
    EXPECT_GE(layer, 2048 * model.hidden * 2) << "at least its input";
    EXPECT_GE(left.backward_workspace_bytes, layer) << "the layer at work has what it kept";
    EXPECT_LT(left.saved_bytes + left.backward_workspace_bytes,
              kept.saved_bytes + kept.backward_workspace_bytes);
  }
}

// torchao 0.18.0, saved by a linear layer of 512 x 256 in bf16 on 128 rows: in int8 and int4 18.6 bytes of
// each weight and 6 of each input, in mxfp4 0.53 of both.
TEST(QuantisationAware, ProductsKeepWhatTheyRound) {
  const ModelSpec model = load_model("llama3-8b");
  Layout l = one_rank(model);
  const StageFootprint plain = footprint_of(model, l);
  l.execution.edit().kept.rounded_weight_bytes = 19;
  const int64_t products =
      share_of(model, l).total() - model.vocab * model.hidden;  // all but the token table
  const auto weights = double(footprint_of(model, l).saved_bytes - plain.saved_bytes);
  EXPECT_NEAR(weights, 19.0 * double(products), 1e-3 * weights);
  l.execution.edit().kept.rounded_weight_bytes = 0;
  l.execution.edit().kept.rounded_input_bytes = 6;
  const int64_t inputs =
      int64_t{2048} * (32 * (4096 + 4096 + 4096 + 14336) + 4096);  // qkv, output, up, down; head
  EXPECT_EQ(footprint_of(model, l).saved_bytes - plain.saved_bytes, 6 * inputs);
}

}  // namespace
}  // namespace mpt::models
