// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/combinations.h"

#include <gtest/gtest.h>

#include <map>

#include "base/ranges.h"
#include "core/schedule_catalog.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

// A layout of 8 ranks that the framework trains, unless `change` makes it another.
struct Asked {
  const char* framework;
  const char* model;
  void (*change)(Layout&);
};

std::optional<Rejection> asked(const Asked& a) {
  const Framework& framework = *find_framework(a.framework);
  const ModelSpec model = trained_by(framework, models::load_model(a.model));
  Layout l;
  l.data = 8;
  l.precision = Precision::bf16;
  l.zero = contains(framework.abilities.zero, 1) ? 1 : 2;
  l.overlap_gradient_reduce = l.overlap_parameter_gather = l.overlap_transfer = true;
  if (contains(framework.abilities.context_methods, ContextMethod::all_to_all))
    l.context_method = ContextMethod::all_to_all;
  a.change(l);
  l.data = 8 / (l.tensor * l.context * l.pipeline);
  l.shard = l.zero > 0 ? l.replicas() : 1;
  l.layers_per_stage = even_stages(model.layers.count(), l.stages());
  return supports(framework, model, l, {64, 4096});
}

std::string why(const Asked& a) {
  const auto rejection = asked(a);
  return rejection ? rejection->reason : "";
}

void zb_v(Layout& l) { l.pipeline = l.chunks = 2, l.schedule = "zb-v", l.zero = 2; }
void dualpipe_v(Layout& l) { l.pipeline = l.chunks = 2, l.schedule = "dualpipe-v", l.zero = 2; }
void one_forward_one_backward(Layout& l) { l.pipeline = 2, l.schedule = "1f1b"; }
void context(Layout& l) { l.context = 2, l.zero = 3; }
void tensor(Layout& l) { l.tensor = 2; }

// A layer of Scout was seen to keep six times what its chosen experts need (transformers 5.24.0).
TEST(Combinations, TransformersComputesAllExpertsOfLlama4) {
  const auto as_it_is = [](Layout&) {};
  for (const char* framework : {"transformers-fsdp", "transformers-deepspeed", "deepspeed"}) {
    EXPECT_TRUE(asked({framework, "llama4-scout", as_it_is})) << framework;
    EXPECT_FALSE(asked({framework, "qwen3-30b-a3b", as_it_is})) << framework;
  }
}

// Tensor ranks of two of them did not start, and those of HunYuan had all layers (nemo-automodel 0.7.0).
TEST(Combinations, AutoModelsTensorPlansFitSomeTypesOnly) {
  for (const char* model : {"olmo2-7b", "glm4-9b-0414", "hunyuan-0.5b", "phi3-mini-128k", "apertus-8b",
                            "opt-30b", "falcon-40b", "gpt-j-6b", "lfm2-350m", "starcoder2-7b"}) {
    const auto no = asked({"automodel", model, tensor});
    ASSERT_TRUE(no) << model;
    EXPECT_EQ(no->constraint, "unplanned") << model;
  }
  const auto with_sequences = [](Layout& l) { l.tensor = 2, l.sequence_parallel = true; };
  for (const char* model : {"llama3-8b", "qwen3-8b", "ernie-4.5-0.3b", "gemma-7b"}) {
    EXPECT_FALSE(asked({"automodel", model, tensor})) << model << why({"automodel", model, tensor});
    EXPECT_FALSE(asked({"automodel", model, with_sequences})) << model;
  }
  for (const char* model : {"mistral-7b", "afm-4.5b", "seed-oss-36b", "granite-3.3-8b", "gemma2-27b"}) {
    EXPECT_FALSE(asked({"automodel", model, tensor})) << model;
    EXPECT_TRUE(asked({"automodel", model, with_sequences})) << model;
  }
}

// Their classes give the mask no positions. Other classes do, and FlashAttention has the bounds of sequences.
TEST(Combinations, PackedSequencesOfSomeModelsNeedFlashAttention) {
  const auto by_mask = [](Layout& l) { l.training.edit().packed_length = 900.0, l.zero = 2; };
  const auto by_bounds = [](Layout& l) {
    l.training.edit().packed_length = 900.0, l.zero = 2;
    l.execution.edit().kernels.attention = AttentionKernel::flash2;
  };
  for (const char* model : {"gpt-oss-20b", "trinity-nano"}) {
    const auto no = asked({"transformers-fsdp", model, by_mask});
    ASSERT_TRUE(no) << model;
    EXPECT_EQ(no->constraint, "trains wrong") << model;
    EXPECT_NE(no->reason.find("--execution attention=flash2"), std::string::npos) << no->reason;
    EXPECT_EQ(why({"transformers-fsdp", model, by_bounds}).find("lets packed"), std::string::npos) << model;
  }
  EXPECT_EQ(why({"transformers-fsdp", "qwen3-8b", by_mask}), "");
}

// AutoModel's forward of a stage looks for a kind of attention that layers of transformers do not name.
TEST(Combinations, PipelinesOfTransformersModelsDropWindows) {
  const auto stages = [](Layout& l) { one_forward_one_backward(l), l.zero = 2; };
  EXPECT_EQ(asked({"automodel", "mistral-7b", stages})->constraint, "trains wrong");
  EXPECT_NE(why({"automodel", "mistral-7b", stages}).find("drops sliding windows"), std::string::npos);
  EXPECT_EQ(why({"automodel", "mistral-7b", tensor}), "");
}

// A split backward looks weights up that ZeRO 3 has sharded again.
TEST(Combinations, ASplitBackwardLosesGradientsOfWeightsThatReshard) {
  const auto with_zero_3 = [](Layout& l) { zb_v(l), l.zero = 3; };
  EXPECT_EQ(asked({"automodel", "llama3-8b", with_zero_3})->constraint, "trains wrong");
  EXPECT_NE(why({"automodel", "llama3-8b", with_zero_3}).find("v0.7.0"), std::string::npos);
  EXPECT_NE(why({"automodel", "qwen3-8b", with_zero_3}).find("loses gradients"), std::string::npos);
  EXPECT_EQ(why({"automodel", "llama3-8b", zb_v}), "");
  EXPECT_EQ(why({"automodel", "llama3-8b", [](Layout& l) { one_forward_one_backward(l), l.zero = 3; }}), "");
  EXPECT_EQ(why({"mpt", "llama3-8b", with_zero_3}), "") << "mpt-run keeps its own graph";
  for (const Framework& f : known_frameworks()) {
    // Whoever takes torch's schedules has the rule, whether another one comes first or not.
    const bool splits = any_of(f.abilities.schedules, [](const ScheduleAbility& s) {
      return find_schedule(s.schedule, "").splits_backward;
    });
    if (!splits || f.name == "mpt") continue;
    EXPECT_GE(broken_rule(f.abilities.combinations, "llama", bit(Trait::split_backward) | bit(Trait::zero_3)),
              0)
        << f.name;
  }
}

TEST(Combinations, ASplitBackwardRecomputesNothing) {
  const auto full = [](Layout& l) { dualpipe_v(l), l.recompute = Recompute::full; };
  const auto selective = [](Layout& l) { dualpipe_v(l), l.recompute = Recompute::selective; };
  EXPECT_EQ(asked({"torchtitan", "llama3-8b", full})->constraint, "unplanned");
  EXPECT_EQ(asked({"pytorch", "llama3-8b", full})->constraint, "unplanned");
  EXPECT_EQ(asked({"automodel", "llama3-8b", [](Layout& l) { zb_v(l), l.recompute = Recompute::full; }})
                ->constraint,
            "unplanned");
  EXPECT_NE(why({"torchtitan", "llama3-8b", selective}).find("does not start in v0.3.0"), std::string::npos);
  EXPECT_EQ(
      why({"torchtitan", "llama3-8b",
           [](Layout& l) { one_forward_one_backward(l), l.zero = 2, l.recompute = Recompute::selective; }}),
      "");
}

// The loss shards the final norm's weight again, which is in the head's group, before a split backward.
TEST(Combinations, TorchtitansChunkedLossLosesGradientsOfASplitBackward) {
  const auto chunked = [](Layout& l) { zb_v(l), l.execution.edit().kernels.loss = LossKernel::chunked; };
  EXPECT_EQ(asked({"torchtitan", "llama3-8b", chunked})->constraint, "trains wrong");
  EXPECT_NE(why({"torchtitan", "llama3-8b", chunked}).find("--execution loss=fp32"), std::string::npos);
  EXPECT_EQ(why({"torchtitan", "llama3-8b", zb_v}), "");
  EXPECT_EQ(why({"torchtitan", "llama3-8b",
                 [](Layout& l) {
                   one_forward_one_backward(l), l.zero = 2;
                   l.execution.edit().kernels.loss = LossKernel::chunked;
                 }}),
            "");
}

TEST(Combinations, TorchtitanAddsBiasesOfExpertsOnceForEachTensorRank) {
  const auto with_sequence = [](Layout& l) { tensor(l), l.sequence_parallel = true, l.zero = 2; };
  EXPECT_NE(why({"torchtitan", "gpt-oss-20b", with_sequence}).find("second bias"), std::string::npos);
  EXPECT_EQ(why({"torchtitan", "qwen3-30b-a3b", with_sequence}), "");
  EXPECT_EQ(why({"torchtitan", "gpt-oss-20b",
                 [](Layout& l) {
                   tensor(l), l.sequence_parallel = true, l.zero = 2;
                   l.expert = 8, l.expert_tensor = 1;
                 }}),
            "");
}

// DeepSpeed's Ulysses exchanges heads of attention and hands on nothing else.
TEST(Combinations, UlyssesHandsOnNoStatesAndNoWindows) {
  for (const char* framework : {"deepspeed", "transformers-deepspeed"}) {
    for (const char* model : {"qwen3.5-9b", "nemotron-nano-9b-v2", "qwen3-next-80b-a3b"})
      EXPECT_NE(why({framework, model, context}).find("starts the state"), std::string::npos)
          << framework << " " << model << ": " << why({framework, model, context});
    for (const char* model : {"gemma3-4b", "mistral-7b"})
      EXPECT_NE(why({framework, model, context}).find("drops sliding windows"), std::string::npos) << model;
    EXPECT_EQ(why({framework, "llama3-8b", context}), "") << framework;
    EXPECT_EQ(why({framework, "mistral-7b", [](Layout&) {}}), "") << framework;
  }
  EXPECT_EQ(why({"mpt", "gemma3-4b", context}), "");
}

template <int64_t zero>
void adafactor(Layout& l) {
  l.training.edit().optimizer = OptimizerKind::adafactor;
  l.zero = zero;
}

// ZeRO gives an optimizer one row for each group of weights, and Adafactor factors matrices alone.
TEST(Combinations, DeepSpeedsZeroKeepsAdafactorsMomentsWhole) {
  for (const char* framework : {"deepspeed", "transformers-deepspeed"}) {
    for (const auto change : {adafactor<1>, adafactor<2>, adafactor<3>})
      EXPECT_NE(why({framework, "llama3-8b", change}).find("second moment of each weight"), std::string::npos)
          << framework << ": " << why({framework, "llama3-8b", change});
    EXPECT_EQ(why({framework, "llama3-8b", adafactor<0>}), "") << framework;
    EXPECT_EQ(why({framework, "llama3-8b", [](Layout& l) { l.zero = 2; }}), "") << framework;
  }
  EXPECT_EQ(why({"transformers-ddp", "llama3-8b", adafactor<0>}), "");
}

TEST(Combinations, MegatronTrainsSomeKindsOfAttentionWrongOverTensorRanks) {
  const auto with_sequence = [](Layout& l) { tensor(l), l.sequence_parallel = true; };
  for (const char* framework : {"megatron-core", "megatron-bridge"}) {
    for (const char* model : {"qwen3.5-9b", "qwen3.5-4b"}) {
      EXPECT_NE(why({framework, model, tensor}).find("trains wrong in"), std::string::npos) << model;
      EXPECT_EQ(why({framework, model, with_sequence}), "") << model;
    }
    for (const char* model : {"gpt-oss-20b", "gpt-oss-120b"})
      EXPECT_NE(why({framework, model, with_sequence}).find("sinks"), std::string::npos) << model;
    EXPECT_EQ(why({framework, "gpt-oss-20b", [](Layout& l) { l.expert = 8; }}), "") << framework;
    const auto muon = [](Layout& l) {
      l.precision = Precision::fp16, l.training.edit().optimizer = OptimizerKind::muon;
    };
    EXPECT_NE(why({framework, "llama3-8b", muon}).find("no Muon in fp16"), std::string::npos);
  }
}

TEST(Combinations, TorchtitansSinksHaveNoFp32) {
  const auto wide = [](Layout& l) { l.precision = Precision::fp32; };
  for (const char* model : {"gpt-oss-20b", "gpt-oss-120b"}) {
    EXPECT_NE(why({"torchtitan", model, wide}).find("FlashAttention 3"), std::string::npos) << model;
    EXPECT_EQ(why({"torchtitan", model, [](Layout&) {}}), "") << model;
  }
  EXPECT_EQ(why({"torchtitan", "llama3-8b", wide}), "");
}

// What makes the loss another than that of one GPU which takes one sequence at a time.
TEST(Combinations, TheObjectiveIsThatOfOneGpuOrSaysWhyNot) {
  const auto objective = [](const char* framework, const char* model, void (*change)(Layout&)) {
    Layout l;
    change(l);
    return objective_of(*find_framework(framework), models::load_model(model), l,
                        {l.micro_batch * l.data, 4096});
  };
  const auto two = [](Layout& l) { l.micro_batch = 2; };
  const auto masked = [](Layout& l) { l.training.edit().masked = 0.5; };
  const auto masked_context = [](Layout& l) { l.training.edit().masked = 0.5, l.context = 2; };
  EXPECT_FALSE(objective("transformers-fsdp", "mixtral-8x7b", two).same);
  EXPECT_FALSE(objective("deepspeed", "qwen3-30b-a3b", two).same);
  EXPECT_FALSE(objective("automodel", "qwen3-30b-a3b", two).same);
  EXPECT_TRUE(objective("megatron-core", "mixtral-8x7b", two).same) << "each sequence is balanced";
  EXPECT_TRUE(objective("mpt", "mixtral-8x7b", two).same) << "each sequence is balanced";
  EXPECT_TRUE(objective("transformers-fsdp", "llama3-8b", two).same);
  const auto accumulating = [](const char* framework) {
    return objective_of(*find_framework(framework), models::load_model("mixtral-8x7b"), Layout{}, {8, 4096});
  };
  EXPECT_FALSE(accumulating("transformers-fsdp").same);
  const auto replicated = [](Layout& l) { l.data = l.shard = 8, l.zero = 3; };
  EXPECT_FALSE(objective("transformers-fsdp", "mixtral-8x7b", replicated).same) << "it grows with the ranks";
  EXPECT_TRUE(objective("transformers-fsdp", "llama3-8b", replicated).same);
  EXPECT_FALSE(objective("transformers-ddp", "mixtral-8x7b", [](Layout& l) { l.data = 2; }).same);
  EXPECT_TRUE(objective("transformers-ddp", "mixtral-8x7b", [](Layout&) {}).same);
  EXPECT_TRUE(accumulating("megatron-core").same);
  EXPECT_TRUE(objective("megatron-core", "llama3-8b", masked_context).same) << "the loss is counted by token";
  EXPECT_FALSE(objective("megatron-core", "mixtral-8x7b", masked_context).same);
  EXPECT_TRUE(objective("megatron-core", "mixtral-8x7b", masked).same);
  const Objective other = objective("deepspeed", "llama3-8b",
                                    [](Layout& l) { l.training.edit().masked = 0.5, l.micro_batch = 2; });
  EXPECT_FALSE(other.same);
  EXPECT_FALSE(other.why.empty() || other.seen.empty());
}

TEST(Combinations, TheObjectiveOfLayoutsThatTrainWrongIsAnother) {
  const auto objective = [](const char* framework, const char* model, void (*change)(Layout&)) {
    Layout l;
    change(l);
    return objective_of(*find_framework(framework), models::load_model(model), l, {8, 4096});
  };
  const auto split_and_sharded = [](Layout& l) {
    l.pipeline = 2, l.data = 2, l.zero = 3, l.chunks = 2, l.schedule = "zb-v";
  };
  for (const char* framework : {"pytorch", "torchtitan", "automodel"}) {
    const Objective wrong = objective(framework, "llama3-8b", split_and_sharded);
    EXPECT_FALSE(wrong.same) << framework;
    EXPECT_FALSE(wrong.seen.empty()) << framework;
  }
  EXPECT_FALSE(objective("megatron-core", "gpt-oss-20b", tensor).same) << "sinks";
  EXPECT_TRUE(objective("megatron-core", "llama3-8b", tensor).same);
}

TEST(Combinations, TheObjectiveOfLayoutsThatWereNotJudgedIsNotKnown) {
  Framework framework = *find_framework("megatron-core");
  framework.abilities.judged = {{{Trait::zero_0}, "run: one"}};
  const auto objective = [&](void (*change)(Layout&)) {
    Layout l;
    change(l);
    return objective_of(framework, models::load_model("llama3-8b"), l, {8, 4096});
  };
  EXPECT_TRUE(objective([](Layout&) {}).same);
  for (const auto change : {+[](Layout& l) { l.tensor = 2; }, +[](Layout& l) { l.zero = 1, l.data = 2; }}) {
    const Objective unknown = objective(change);
    EXPECT_FALSE(unknown.same);
    EXPECT_NE(unknown.why.find("was not judged"), std::string::npos);
    EXPECT_EQ(unknown.seen, "");
  }
}

TEST(Combinations, WhatIsInNoJudgedSetIsNotJudged) {
  const std::vector<JudgedSet> sets{{{Trait::pipeline, Trait::zero_1}, ""},
                                    {{Trait::zero_3, Trait::windows}, ""}};
  EXPECT_TRUE(is_judged(sets, 0));
  EXPECT_TRUE(is_judged(sets, bit(Trait::pipeline)));
  EXPECT_TRUE(is_judged(sets, bit(Trait::zero_3) | bit(Trait::windows)));
  EXPECT_FALSE(is_judged(sets, bit(Trait::pipeline) | bit(Trait::windows)));
  EXPECT_EQ(unjudged(sets, bit(Trait::pipeline) | bit(Trait::windows) | bit(Trait::zero_1)),
            "windows, zero 1");
  Framework framework = *find_framework("deepspeed");
  framework.abilities.judged = sets;
  const auto refused = check_combination(framework, "llama", bit(Trait::pipeline) | bit(Trait::windows));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->constraint, "not judged");
  EXPECT_NE(refused->reason.find("windows, pipeline"), std::string::npos) << refused->reason;
}

// Every rule and judged set names what it was seen by; tests/frameworks/evidence_test.py looks it up.
TEST(Combinations, NameARunOrALine) {
  for (const Framework& f : known_frameworks()) {
    EXPECT_FALSE(f.abilities.judged.empty()) << f.name;
    for (const CombinationRule& rule : f.abilities.combinations) {
      EXPECT_FALSE(rule.with.empty() || rule.what.empty() || rule.seen.empty()) << f.name;
    }
    for (const JudgedSet& set : f.abilities.judged) EXPECT_FALSE(set.seen.empty()) << f.name;
  }
}

}  // namespace
}  // namespace mpt::frameworks
