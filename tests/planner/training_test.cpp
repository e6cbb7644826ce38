// SPDX-License-Identifier: Apache-2.0

// Ways to train, from the request to the price.

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"
#include "planner/api.h"
#include "planner/explain/plan_notes.h"
#include "planner/request/resolve.h"
#include "planner/request/resolve_parts.h"
#include "planner/search/search.h"
#include "tests/planner/priced_layouts.h"

namespace mpt::planner {
namespace {

PlanRequest lora_request(const std::string& framework) {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.cluster.name = "dgx-h100:1";
  r.global_batch = 64;
  r.framework = framework;
  r.lora = 16;
  return r;
}

std::string refusal_of(const PlanRequest& r) {
  try {
    resolve(r);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

double step_of(const Training& training, const std::string& cluster = "dgx-h100:1") {
  Layout l = test::layout_of(1, 1, Recompute::none);
  l.data = l.shard = 8;
  l.zero = 1;
  l.training = training;
  test::Priced p("llama3-8b", cluster, l);
  return evaluate(p.problem, estimate(p.problem, p.layout)).step_time_s;
}

Training adapters(FrozenFormat format) {
  Training t;
  t.adapter_rank = 16;
  t.adapter_targets = {AdapterTarget::qkv, AdapterTarget::output, AdapterTarget::up, AdapterTarget::down};
  t.frozen_format = format;
  return t;
}

TEST(Training, IsRefusedWhereTheFrameworkLacksIt) {
  EXPECT_EQ(refusal_of(lora_request("megatron-bridge")), "");
  EXPECT_EQ(refusal_of(lora_request("automodel")), "");
  const std::string refused = refusal_of(lora_request("megatron-core"));
  EXPECT_NE(refused.find("does not train with LoRA"), std::string::npos) << refused;
  EXPECT_NE(refused.find("automodel, megatron-bridge"), std::string::npos) << refused;
  PlanRequest quantised = lora_request("megatron-bridge");
  quantised.frozen_weights = FrozenFormat::nf4;
  EXPECT_NE(refusal_of(quantised).find("4 bits"), std::string::npos);
}

TEST(Training, OptionsThatNeedOthersSaySo) {
  PlanRequest r = lora_request("automodel");
  r.lora = 0;
  r.lora_targets = {AdapterTarget::up};
  EXPECT_NE(refusal_of(r).find("without --lora"), std::string::npos);
  r.lora_targets.clear();
  r.frozen_weights = FrozenFormat::nf4;
  EXPECT_NE(refusal_of(r).find("weights that are frozen"), std::string::npos);
  r = lora_request("automodel");
  r.freeze = {FrozenPart::head};
  EXPECT_NE(refusal_of(r).find("beside --lora"), std::string::npos);
  r = lora_request("megatron-core");
  r.lora = 0;
  r.offload_activations = {OffloadModule::attn_proj};
  EXPECT_NE(refusal_of(r).find("core_attn"), std::string::npos);
  r.offload_activations.clear();
  r.gradients = Precision::fp8;
  EXPECT_NE(refusal_of(r).find("fp32 or bf16"), std::string::npos);
}

PlanRequest gradient_request(const std::string& framework, Precision gradients) {
  PlanRequest r = lora_request(framework);
  r.lora = 0;
  r.gradients = gradients;
  return r;
}

// fp32 sums are the default wherever the export writes them; 16 bits are for whoever asks.
TEST(Gradients, AreInFp32UnlessAskedFor) {
  for (const char* framework : {"deepspeed", "megatron-bridge", "transformers-deepspeed", "megatron-core"}) {
    for (const Precision asked : {Precision::fp32, Precision::bf16}) {
      const auto resolved = resolve(gradient_request(framework, asked));
      EXPECT_EQ(resolved->problem.training.bf16_gradients, asked == Precision::bf16) << framework;
    }
    PlanRequest open = gradient_request(framework, Precision::fp32);
    open.gradients.reset();
    Layout layout;
    layout.execution = resolve(open)->problem.execution;
    EXPECT_EQ(gradient_element_bytes(layout), 4) << framework;
  }
  for (const char* framework : {"torchtitan", "pytorch", "transformers-fsdp"})
    EXPECT_EQ(refusal_of(gradient_request(framework, Precision::fp32)), "") << framework;
  const std::string narrow = refusal_of(gradient_request("torchtitan", Precision::bf16));
  EXPECT_NE(narrow.find("bf16 with torchtitan; expected fp32"), std::string::npos) << narrow;
  EXPECT_TRUE(resolve(gradient_request("megatron-core", Precision::bf16))->problem.training.bf16_gradients);
}

// AutoModel keeps weights, gradients and moments in one type: bf16 unless it is told.
TEST(Gradients, InFp32BringWeightsAndMomentsInFp32WhereAllAreOfOneType) {
  const Execution wide = resolve(gradient_request("automodel", Precision::fp32))->problem.execution;
  EXPECT_EQ(wide.states.weight_bytes, 4);
  EXPECT_EQ(wide.states.gradient_bytes, 4);
  EXPECT_EQ(wide.states.optimizer_bytes, 8);
  PlanRequest open = gradient_request("automodel", Precision::fp32);
  open.gradients.reset();
  EXPECT_EQ(resolve(open)->problem.execution.states.optimizer_bytes, 4);
}

// One replica has nothing to share, but DeepSpeed offloads with ZeRO alone (arXiv:2101.06840 trains on one
// GPU).
TEST(Offload, OfOneGpuHasTheZeroThatTheFrameworkOffloadsWith) {
  PlanRequest r = gradient_request("transformers-deepspeed", Precision::bf16);
  r.gradients.reset();
  r.cluster.name = "dgx-a100:1";
  r.gpus = 1;
  const Layout layout = plan(r).layout;
  EXPECT_TRUE(layout.offload_optimizer);
  EXPECT_GE(layout.zero, 1);
}

// Where nothing fits other frameworks are tried, of which some refuse what was asked.
TEST(Gradients, ThatAnotherFrameworkRefusesDoNotHideThatNothingFits) {
  PlanRequest r = gradient_request("", Precision::bf16);
  r.model.name = "llama3-70b";
  r.precision = Precision::fp8;
  r.bounds.tensor = {8};
  r.bounds.offload = {Switch::off};
  try {
    plan(r);
    FAIL() << "something fits";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("memory: llama3-70b needs at least"), std::string::npos)
        << error.what();
  }
}

Training packed(const std::vector<std::string>& lengths, int64_t tokens = 8192) {
  PlanRequest r;
  r.lengths = lengths;
  r.global_batch = 64;
  return training_of(r, tokens);
}

// A token of a sequence of n costs n in attention: the mean over tokens is that of n squared over that of n.
TEST(Training, LengthsBecomeOneOfEqualWork) {
  EXPECT_DOUBLE_EQ(packed({"1024=1"}).packed_length, 1024.0);
  EXPECT_NEAR(packed({"1024=1"}).packed_spread, 0.0, 1e-9);
  const Training two = packed({"512=0.5", "2048=0.5"});
  EXPECT_DOUBLE_EQ(two.packed_length, (512.0 * 512.0 + 2048.0 * 2048.0) / (512.0 + 2048.0));
  EXPECT_GT(two.packed_spread, 0.0);
  EXPECT_EQ(two.packed_sequences, 64);
  // Exponential lengths far below the longest: twice the mean.
  EXPECT_NEAR(packed({"200:8192"}).packed_length, 400.0, 4.0);
  // Even lengths: two thirds of the longest.
  EXPECT_NEAR(packed({"4096:8192"}).packed_length, 8192.0 * 2.0 / 3.0, 8.0);
  for (const char* wrong : {"9000:8192", "0:4", "12", "512=x", "9000=1"})
    EXPECT_THROW(packed({wrong}), UserError) << wrong;
}

TEST(Training, AdaptersTakeLessTimeAndStoredBitsSomeOfItBack) {
  const double full = step_of({}), bf16 = step_of(adapters(FrozenFormat::bf16)),
               nf4 = step_of(adapters(FrozenFormat::nf4));
  EXPECT_LT(bf16, 0.8 * full);
  EXPECT_GT(bf16, 0.6 * full);
  EXPECT_GT(nf4, bf16);
  EXPECT_LT(nf4, full);
}

// As its recipes are imported: all in 16 bits, unless adapters or fp32 are trained.
TEST(Training, AxolotlTrainsNarrowWeights) {
  PlanRequest r;
  r.model.name = "llama3-8b";
  r.cluster.name = "dgx-h100:1";
  r.framework = "axolotl";
  r.global_batch = 64;
  const auto bytes = [&r] {
    const StateBytes s = resolve(r)->problem.execution.states;
    return std::array{s.weight_bytes, s.gradient_bytes, s.optimizer_bytes};
  };
  EXPECT_EQ(bytes(), (std::array<int64_t, 3>{2, 2, 4}));
  r.framework = "transformers-fsdp";
  const auto wide = bytes();
  r.framework = "axolotl";
  r.lora = 16;
  EXPECT_EQ(bytes(), wide);
  r.lora = 0;
  r.precision = Precision::fp32;
  EXPECT_NE(bytes()[0], 2);
}

TEST(Training, MuonsStepsTakeTimeAndNarrowMomentsSaveIt) {
  Training t;
  const double adamw = step_of(t);
  t.optimizer = OptimizerKind::muon;
  EXPECT_GT(step_of(t), adamw);
  t.optimizer = OptimizerKind::adamw8;
  EXPECT_LT(step_of(t), adamw);
}

// Gathers of DeepSpeed, exchanges of torchtitan and NeMo AutoModel (frameworks/*/framework.json).
TEST(Training, MuonMovesTheMatricesThatAreSharedOut) {
  const auto beyond_free_s = [](const char* framework, int64_t zero) {
    Layout l = test::layout_of(1, 1, Recompute::none);
    l.data = l.shard = 16;
    l.zero = zero;
    l.training.edit().optimizer = OptimizerKind::muon;
    test::Priced p("llama3-8b", "dgx-h100:2", l, framework);
    const double s = evaluate(p.problem, estimate(p.problem, p.layout)).step_time_s;
    Traffic& traffic = p.problem.execution.traffic;
    traffic.muon_gathered_bytes = traffic.muon_exchanged_bytes = 0;
    p.layout.execution = p.problem.execution;
    const double free_s = evaluate(p.problem, estimate(p.problem, p.layout)).step_time_s;
    const models::StagePieces pieces(p.problem.model, p.layout, 4096);
    models::KindCounts layers(1);
    layers[0] = p.problem.model.layers.count();
    const int64_t weights = pieces.parameters(layers, false, false).dense;
    const auto moved_s = [&](models::CollectiveKind kind, int64_t bytes) {
      return p.source->collective_s(kind, bytes, {16, 16});
    };
    const double expected_s =
        zero == 3 && std::string(framework) == "deepspeed"
            ? moved_s(models::CollectiveKind::all_gather, 8 * weights)
        : std::string(framework) == "deepspeed"
            ? 0.0
            : moved_s(models::CollectiveKind::all_to_all,
                      (std::string(framework) == "torchtitan" ? 8 : 4) * (weights / 16));
    EXPECT_NEAR(s - free_s, expected_s, 1e-6 + 1e-3 * expected_s) << framework << " " << zero;
    return s - free_s;
  };
  EXPECT_GT(beyond_free_s("deepspeed", 3), beyond_free_s("torchtitan", 3)) << "whole matrices on every rank";
  EXPECT_EQ(beyond_free_s("deepspeed", 2), 0.0);
  EXPECT_GT(beyond_free_s("torchtitan", 2), beyond_free_s("automodel", 2));
}

// findings/deepspeed_zero2_all_reduces_gradients.sh
TEST(Training, DeepSpeedsZeroOneAndTwoSumWholeGradients) {
  const auto beyond_scatters = [](const char* framework, int64_t zero) {
    Layout l = test::layout_of(1, 1, Recompute::none);
    l.data = l.shard = 16;
    l.zero = zero;
    test::Priced p("llama3-8b", "dgx-h100:2", l, framework);
    p.problem.memory_limit_bytes *= 2;  // whole gradients and the optimizer's share
    const double s = evaluate(p.problem, estimate(p.problem, p.layout)).step_time_s;
    p.problem.execution.traffic.all_reduces_gradients = false;
    p.layout.execution = p.problem.execution;
    const double scattered_s = evaluate(p.problem, estimate(p.problem, p.layout)).step_time_s;
    const models::StagePieces pieces(p.problem.model, p.layout, 4096);
    models::KindCounts layers(1);
    layers[0] = p.problem.model.layers.count();
    const int64_t bytes = 2 * pieces.parameters(layers, true, true).dense;
    return (s - scattered_s) /
           (p.source->collective_s(models::CollectiveKind::all_reduce, bytes, {16, 16}) -
            p.source->collective_s(models::CollectiveKind::reduce_scatter, bytes, {16, 16}));
  };
  for (const char* framework : {"deepspeed", "transformers-deepspeed"}) {
    EXPECT_NEAR(beyond_scatters(framework, 1), 1.0, 0.01) << framework;
    EXPECT_NEAR(beyond_scatters(framework, 2), 4.0, 0.04) << framework << ": each micro-batch";
    EXPECT_EQ(beyond_scatters(framework, 3), 0.0) << framework;
  }
  EXPECT_EQ(beyond_scatters("megatron-core", 1), 0.0);
  EXPECT_EQ(beyond_scatters("torchtitan", 2), 0.0);
}

TEST(Training, NotesSayWhichWeightsAndMomentsStayWide) {
  const auto noted = [](const PlanRequest& r, const std::string& words) {
    const auto resolved = resolve(r);
    return std::any_of(resolved->notes.begin(), resolved->notes.end(),
                       [&](const std::string& note) { return note.find(words) != std::string::npos; });
  };
  PlanRequest r = lora_request("transformers-fsdp");
  r.frozen_weights = FrozenFormat::nf4;
  EXPECT_FALSE(noted(r, "frozen experts stay in 16 bits"));
  EXPECT_TRUE(noted(r, "set bnb_4bit_quant_storage to bfloat16"));
  r.model.name = "qwen3-30b-a3b";
  EXPECT_TRUE(noted(r, "frozen experts stay in 16 bits beside nf4 weights"));
  r.frozen_weights.reset();
  EXPECT_FALSE(noted(r, "frozen experts"));
  r.optimizer = OptimizerKind::adamw8;
  EXPECT_TRUE(noted(r, "opens on as many ranks as wrote it"));
  r.framework = "transformers-deepspeed";
  EXPECT_FALSE(noted(r, "opens on as many ranks"));
  r.lora_targets = {AdapterTarget::experts};
  EXPECT_EQ(refusal_of(r), "") << "peft trains them";
}

// No run has this mode alone.
TEST(Training, DeterminismHasNoPriceAndSaysSo) {
  PlanRequest r;
  r.model.name = "gpt3-175b";
  r.cluster.name = "dgx-a100:8";
  r.global_batch = 64;
  r.bounds.tensor = r.bounds.pipeline = {8};
  const double without_s = estimate(r).candidate.evaluation.step_time_s;
  r.deterministic = true;
  const Estimated with = estimate(r);
  EXPECT_EQ(with.candidate.evaluation.step_time_s, without_s);
  EXPECT_TRUE(std::any_of(with.plan.notes.begin(), with.plan.notes.end(), [](const std::string& note) {
    return note.find("no run tells what they alone cost") != std::string::npos;
  }));
}

// No framework is said to lack what its own code does (frameworks/*/framework.json, trains_unwritten).
TEST(Training, IsPlannedWhereTheFrameworkRunsWhatMptDoesNotWrite) {
  PlanRequest r = lora_request("torchtitan");
  r.lora = 0;
  for (const char* framework : {"automodel", "megatron-bridge", "megatron-core", "torchtitan", "pytorch",
                                "deepspeed", "transformers-deepspeed", "transformers-fsdp"}) {
    r.framework = framework;
    r.lengths = {"200:4096"};
    EXPECT_EQ(refusal_of(r), "") << framework << " packs sequences";
    r.lengths.clear();
    r.freeze = {FrozenPart::embedding};
    EXPECT_EQ(refusal_of(r), "") << framework << " leaves out weights without gradients";
    r.freeze.clear();
  }
  const std::vector<std::pair<const char*, OptimizerKind>> optimizers{
      {"transformers-fsdp", OptimizerKind::sgd}, {"transformers-deepspeed", OptimizerKind::sgd},
      {"deepspeed", OptimizerKind::sgd},         {"deepspeed", OptimizerKind::adafactor},
      {"deepspeed", OptimizerKind::adamw8},      {"deepspeed", OptimizerKind::muon},
      {"torchtitan", OptimizerKind::muon},       {"automodel", OptimizerKind::adamw8}};
  for (const auto& [framework, optimizer] : optimizers) {
    r.framework = framework;
    r.optimizer = optimizer;
    EXPECT_EQ(refusal_of(r), "") << framework << " " << enum_name(optimizer);
  }
  // findings/adafactor_fails_on_shares.sh
  for (const char* shares : {"transformers-fsdp", "automodel"}) {
    r.framework = shares;
    r.optimizer = OptimizerKind::adafactor;
    EXPECT_NE(refusal_of(r).find("Adafactor"), std::string::npos) << shares;
  }
}

TEST(Training, DeterminismIsRefusedWhereItsPriceIsUnknown) {
  PlanRequest r = lora_request("megatron-core");
  r.lora = 0;
  r.deterministic = true;
  const auto resolved = resolve(r);
  EXPECT_TRUE(resolved->problem.training.deterministic);
  r.framework = "megatron-bridge";
  EXPECT_EQ(resolve(r)->problem.execution.kernels.loss, LossKernel::fp32) << "it refuses the fused loss";
  for (const auto& [framework, words] :
       std::map<std::string, std::string>{{"torchtitan", "MPT plans no --deterministic for "},
                                          {"pytorch", "MPT plans no --deterministic for "},
                                          {"automodel", "does not train with --deterministic"},
                                          {"deepspeed", "does not train with --deterministic"}}) {
    r.framework = framework;
    const std::string refused = refusal_of(r);
    EXPECT_NE(refused.find(words), std::string::npos) << refused;
    EXPECT_NE(refused.find("megatron-bridge, megatron-core"), std::string::npos) << refused;
  }
}

TEST(Training, GradientsInSixteenBitsTravelFaster) {
  Training t;
  const double wide = step_of(t, "dgx-h100:1");
  t.bf16_gradients = true;
  EXPECT_LT(step_of(t, "dgx-h100:1"), wide);
}

// What leaves in both passes takes no time until the link to the host's memory is the slowest.
TEST(Training, ActivationsLeaveBesideTheWork) {
  Layout l = test::layout_of(1, 1, Recompute::none);
  l.training.edit().offloaded = {OffloadModule::core_attn};
  test::Priced p("llama3-8b", "dgx-h100:1", l);
  p.problem.memory_limit_bytes = int64_t{1} << 50;
  const auto step = [&](double bandwidth, bool offloads) {
    p.problem.cluster.device.host_bandwidth_bytes_per_s = bandwidth;
    const auto source = make_device_cost(p.problem.cluster, p.problem.execution);
    p.problem.cost = source.get();
    Layout of = p.layout;
    if (!offloads) of.training = {};
    return evaluate(p.problem, estimate(p.problem, of)).step_time_s;
  };
  EXPECT_NEAR(step(1e12, true), step(1e12, false), 1e-9);
  EXPECT_GT(step(1e9, true), 2.0 * step(1e9, false));
}

// A frozen table that the head shares has no gradient for the two to add up: the search prices the same step
// as whoever evaluates its layout, and says so by an internal error where it does not.
TEST(Training, OfAdaptersOverATiedTableIsSearched) {
  PlanRequest r = lora_request("automodel");
  r.model.name = "gemma4-26b-a4b";
  r.cluster.name = "rtx-pro-6000-server:1";
  r.bounds.pipeline = {2};
  r.beyond_framework = true;  // which has no pipeline for tied tables
  const auto resolved = resolve(r);
  ASSERT_TRUE(resolved->problem.model.tied_embeddings);
  EXPECT_FALSE(search(resolved->problem, 1).best.empty());
}

TEST(Training, IsToldInWords) {
  EXPECT_EQ(training_words({}), "");
  EXPECT_EQ(training_words(adapters(FrozenFormat::nf4)),
            "LoRA of rank 16 on qkv, output, up, down over nf4 weights");
  Training t;
  t.optimizer = OptimizerKind::muon;
  t.frozen = {FrozenPart::embedding};
  EXPECT_EQ(training_words(t), "frozen: embedding; optimizer muon");
}

}  // namespace
}  // namespace mpt::planner
