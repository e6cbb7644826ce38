// SPDX-License-Identifier: Apache-2.0
#include "frameworks/supports/supports.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/schedule_catalog.h"
#include "frameworks/framework.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

const Workload kWorkload{64, 4096};

// A layout that every framework runs: ZeRO 2 or 1 over 8 replicas.
Layout plain(const Framework& framework) {
  Layout l;
  l.data = 8;
  l.precision = Precision::bf16;
  l.zero = *std::max_element(framework.abilities.zero.begin(), framework.abilities.zero.end());
  l.shard = 8;
  l.layers_per_stage = {32};
  l.overlap_gradient_reduce = l.overlap_parameter_gather = true;
  return l;
}

// Stages and shares are completed where a case leaves them out.
std::string why(const Framework& framework, Layout l, const Workload& workload = kWorkload,
                const char* name = "llama3-8b") {
  const ModelSpec model = models::load_model(name);
  const int64_t layers = std::accumulate(l.layers_per_stage.begin(), l.layers_per_stage.end(), int64_t{0});
  if (layers != model.layers.count() || int64_t(l.layers_per_stage.size()) != l.stages())
    l.layers_per_stage = even_stages(model.layers.count(), l.stages());
  l.shard = l.zero == 0 ? 1 : std::min(l.shard, l.replicas());
  const auto rejection = supports(framework, model, l, workload);
  return rejection ? rejection->reason : "";
}

// Megatron-Core gathers the product of the ranks that share a head.
TEST(Supports, KeyValueHeadsOfSeveralTensorRanks) {
  for (const Framework& framework : known_frameworks()) {
    if (!framework.abilities.tensor) continue;
    Layout l = plain(framework);
    l.tensor = 16;
    l.data = 4;
    l.sequence_parallel = framework.abilities.sequence_parallel != SequenceParallelRule::none;
    const bool megatron = framework.name == "megatron-core" || framework.name == "megatron-bridge";
    EXPECT_EQ(why(framework, l).find("8 key-value heads over 16 tensor ranks") == std::string::npos, megatron)
        << framework.name << ": " << why(framework, l);
    l.tensor = 12;
    EXPECT_NE(why(framework, l), "") << framework.name << ": 32 heads";
  }
}

// No layout of no whole stages is accepted, whoever asks.
TEST(Supports, AHalfBuiltLayoutIsRefused) {
  Layout l = plain(own_runtime());
  l.layers_per_stage.clear();
  const auto rejection = supports(own_runtime(), models::load_model("llama3-8b"), l, kWorkload);
  ASSERT_TRUE(rejection);
  EXPECT_EQ(rejection->reason, "layers_per_stage has 0 entries for 1 stages");
}

struct FieldNames {
  std::set<std::string> names;
  template <class... Rest>
  void field(const char* name, Rest&&...) {
    names.insert(name);
  }
};

TEST(Frameworks, FilesSpeakOfThingsThatExist) {
  FieldNames abilities;
  Abilities::describe(abilities);
  FieldNames execution;
  Execution::describe(execution);
  std::set<std::string> names;
  ASSERT_GE(known_frameworks().size(), 9u);
  for (const Framework& f : known_frameworks()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_FALSE(f.title.empty() || f.version.empty() || f.sources.empty()) << f.name;
    for (const auto& [what, source] : f.sources) {
      const bool known = abilities.names.contains(what) || execution.names.contains(what) || what == "all" ||
                         what == "execution" || what == "without_compile" || what == "combinations" ||
                         contains(enum_names<TrainingFeature>(), what);
      EXPECT_TRUE(known && !source.empty()) << f.name << " " << what;
    }
    EXPECT_TRUE(f.sources.contains("execution")) << f.name;
    for (const ScheduleAbility& s : f.abilities.schedules) {
      const ScheduleEntry& entry = find_schedule(s.schedule, f.name);
      EXPECT_GE(s.min_chunks, entry.min_chunks) << f.name << " " << s.schedule;
      EXPECT_LE(s.max_chunks, entry.max_chunks) << f.name << " " << s.schedule;
    }
    EXPECT_FALSE(f.abilities.zero.empty() || f.abilities.precisions.empty() ||
                 f.abilities.recomputes.empty());
    EXPECT_EQ(why(f, plain(f)), "") << f.name;
  }
}

TEST(Frameworks, OwnRuntimeTakesEverySchedule) {
  for (const ScheduleEntry& entry : schedule_catalog()) {
    Layout l;
    l.pipeline = 4;
    EXPECT_FALSE(supports_schedule(own_runtime(), l, entry.name, entry.min_chunks, 8)) << entry.name;
  }
}

struct Case {
  const char* framework;
  const char* reason;  // empty: it runs
  void (*change)(Layout&);
};

const Case kCases[] = {
    {"megatron-core", "has no zb-v schedule; it has 1f1b, interleaved",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.chunks = 2, l.schedule = "zb-v";
     }},
    {"megatron-core", "",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.chunks = 2, l.schedule = "interleaved";
       l.layers_per_stage = {8, 8, 8, 8};
     }},
    {"megatron-core",
     "MPT plans interleaved for Megatron-LM only with a multiple of the pipeline ranks as micro-batches",
     [](Layout& l) {
       l.pipeline = 3, l.data = 4, l.zero = 1, l.shard = 4, l.chunks = 2, l.schedule = "interleaved";
     }},
    {"megatron-core", "has no ZeRO 3 with pipeline parallelism",
     [](Layout& l) { l.pipeline = 2, l.data = 4, l.zero = 3, l.shard = 4; }},
    {"megatron-core", "has no optimizer state in the host's memory with ZeRO 0",
     [](Layout& l) { l.zero = 0, l.shard = 1, l.offload_optimizer = true; }},
    {"megatron-core", "recomputes the same number of layers in every stage",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.layers_per_stage = {16, 16};
       l.recompute = Recompute::full, l.recomputed_layers = {3, 2};
     }},
    {"megatron-core", "",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.layers_per_stage = {30, 2};
       l.recompute = Recompute::full, l.recomputed_layers = {3, 2};
     }},
    {"torchtitan", "", [](Layout& l) { l.tensor = 2, l.data = 4, l.zero = 3, l.shard = 4; }},
    {"torchtitan", "may have ZeRO 3 with pipeline parallelism, which MPT does not plan",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 3, l.shard = 4, l.layers_per_stage = {16, 16};
     }},
    {"torchtitan", "has no all_to_all context parallelism",
     [](Layout& l) { l.context = 2, l.data = 4, l.context_method = ContextMethod::all_to_all; }},
    {"torchtitan", "combines plain replicas with no other parallelism",
     [](Layout& l) { l.tensor = 2, l.data = 4, l.sequence_parallel = true, l.zero = 0, l.shard = 1; }},
    {"torchtitan", "runs zb-v only without torch.compile",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.chunks = 2, l.schedule = "zb-v", l.zero = 2, l.shard = 4;
       l.execution.edit().kernels.elementwise = ElementwiseKernels::compiled;
     }},
    {"torchtitan", "needs at least twice as many micro-batches as pipeline ranks for dualpipe-v",
     [](Layout& l) {
       l.pipeline = 8, l.data = 1, l.micro_batch = 8, l.chunks = 2, l.schedule = "dualpipe-v", l.zero = 0;
       l.shard = 1;
     }},
    {"torchtitan", "recomputes all layers or none",
     [](Layout& l) { l.recompute = Recompute::full, l.recomputed_layers = {8}; }},
    {"torchtitan", "", [](Layout& l) { l.recompute = Recompute::full; }},
    {"torchtitan", "", [](Layout& l) { l.execution.edit().kernels.graphs = true; }},
    {"torchtitan", "captures graphs only without pipelines and expert parallelism",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 2, l.shard = 4, l.layers_per_stage = {16, 16};
       l.execution.edit().kernels.graphs = true;
     }},
    {"deepspeed", "has no hybrid sharding with ZeRO 3", [](Layout& l) { l.zero = 3, l.shard = 4; }},
    {"torchtitan", "does not train llama3-8b in fp16", [](Layout& l) { l.precision = Precision::fp16; }},
    {"pytorch", "has no ZeRO 3 with pipeline parallelism",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.shard = 4, l.layers_per_stage = {16, 16};
     }},
    {"pytorch", "",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 2, l.shard = 4, l.layers_per_stage = {16, 16};
       l.schedule = "zb-h1";
     }},
    {"pytorch", "",
     [](Layout& l) { l.tensor = 2, l.data = 2, l.context = 2, l.sequence_parallel = true, l.shard = 4; }},
    {"pytorch", "does not train llama3-8b in fp8", [](Layout& l) { l.precision = Precision::fp8; }},
    {"pytorch", "",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 2, l.shard = 4, l.layers_per_stage = {17, 15};
     }},
    {"pytorch", "has no ZeRO 1", [](Layout& l) { l.zero = 1; }},
    {"transformers-fsdp", "", [](Layout& l) { l.recompute = Recompute::full, l.recomputed_layers = {11}; }},
    {"transformers-fsdp", "recomputes the first layer and every n-th after it",
     [](Layout& l) { l.recompute = Recompute::full, l.recomputed_layers = {13}; }},
    {"transformers-deepspeed", "",
     [](Layout& l) { l.recompute = Recompute::full, l.recomputed_layers = {5}; }},
    {"pytorch", "", [](Layout& l) { l.recompute = Recompute::full, l.recomputed_layers = {4}; }},
    {"transformers-fsdp", "no tensor parallelism", [](Layout& l) { l.tensor = 2, l.data = 4; }},
    {"deepspeed", "MPT plans no tensor parallelism for DeepSpeed (docs/_tutorials/autotp",
     [](Layout& l) { l.tensor = 2, l.data = 4; }},
    {"deepspeed", "has no hybrid sharding with ZeRO 2", [](Layout& l) { l.zero = 2, l.shard = 4; }},
    {"deepspeed", "has no ZeRO 2 with pipeline parallelism",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 2, l.shard = 4, l.layers_per_stage = {16, 16};
     }},
    {"deepspeed", "has no ring context parallelism", [](Layout& l) { l.context = 2, l.data = 4; }},
    {"deepspeed", "",
     [](Layout& l) { l.context = 2, l.data = 4, l.context_method = ContextMethod::all_to_all; }},
    {"deepspeed", "has no context parallelism in a pipeline",
     [](Layout& l) {
       l.pipeline = l.context = l.data = 2, l.zero = 1, l.shard = 4, l.layers_per_stage = {16, 16};
       l.context_method = ContextMethod::all_to_all;
     }},
    {"transformers-deepspeed", "has no pipeline parallelism",
     [](Layout& l) { l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4; }},
    {"transformers-deepspeed", "", [](Layout& l) { l.offload_optimizer = true; }},
    {"automodel", "has no v-half schedule",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 2, l.shard = 4, l.chunks = 2, l.schedule = "v-half";
     }},
    {"automodel", "", [](Layout& l) { l.tensor = 2, l.data = 4, l.shard = 4; }},
    {"deepspeed", "needs stages of equal numbers of layers",
     [](Layout& l) {
       l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.layers_per_stage = {17, 15};
     }},
};

TEST(Supports, SaysWhichRuleALayoutBreaks) {
  for (const Case& c : kCases) {
    const Framework& framework = *find_framework(c.framework);
    Layout l = plain(framework);
    c.change(l);
    Workload workload = kWorkload;
    if (l.pipeline == 3) workload.global_batch = 4 * 16;
    const std::string reason = why(framework, l, workload);
    if (c.reason[0] == '\0') {
      EXPECT_EQ(reason, "") << c.framework << " " << layout_name(l);
    } else {
      EXPECT_NE(reason.find(c.reason), std::string::npos) << c.framework << ": " << reason;
    }
  }
}

// Rounds as PyTorch's interleaved classes count them; torchtitan and AutoModel hand their micro-batches on.
TEST(Supports, InterleavedClassesOfPyTorchTakeEqualRounds) {
  const auto takes = [](const char* framework, const char* schedule, int64_t micro_batches) {
    Layout l;
    l.pipeline = 4;
    return !supports_schedule(*find_framework(framework), l, schedule, 2, micro_batches);
  };
  for (const char* framework : {"pytorch", "torchtitan", "automodel"}) {
    for (const char* schedule : {"interleaved", "zb-interleaved"}) {
      EXPECT_TRUE(deals_equal_rounds(*find_framework(framework), schedule)) << framework;
      for (const int64_t m : {4, 6, 7, 8, 10, 12, 15}) EXPECT_TRUE(takes(framework, schedule, m)) << m;
      for (const int64_t m : {9, 11, 13, 14}) EXPECT_FALSE(takes(framework, schedule, m)) << m;
    }
    EXPECT_FALSE(deals_equal_rounds(*find_framework(framework), "1f1b"));
  }
  EXPECT_TRUE(takes("pytorch", "interleaved", 3));
  EXPECT_FALSE(takes("automodel", "interleaved", 3)) << "its recipe asks for as many as ranks";
  EXPECT_FALSE(deals_equal_rounds(own_runtime(), "interleaved"));
}

// What models with experts combine with, whether or not these are spread.
TEST(Supports, ExpertsCombineWithWhatTheFrameworkSays) {
  const auto reason = [](const char* framework, void (*change)(Layout&)) {
    const Framework& known = *find_framework(framework);
    Layout l = plain(known);
    l.zero = 2;
    if (!known.abilities.context_methods.empty()) l.context_method = known.abilities.context_methods.front();
    change(l);
    return why(known, l, kWorkload, known.name == "automodel" ? "qwen3-30b-a3b" : "mixtral-8x7b");
  };
  const auto spread = [](Layout& l) { l.expert = 8, l.expert_tensor = 1; };
  EXPECT_NE(reason("deepspeed", spread).find("_CanRecordRegistry.get()"), std::string::npos);
  EXPECT_EQ(reason("automodel", spread), "");
  const auto in_pipeline = [](Layout& l) {
    l.pipeline = 2, l.data = 4, l.zero = 1, l.shard = 4, l.layers_per_stage = {16, 16};
  };
  EXPECT_EQ(reason("deepspeed", in_pipeline), "DeepSpeed has no experts in a pipeline");
  EXPECT_EQ(reason("megatron-core", in_pipeline), "");
  const auto with_context = [](Layout& l) { l.context = 2, l.data = 4; };
  EXPECT_EQ(reason("automodel", with_context), "");
  EXPECT_EQ(reason("deepspeed", with_context), "DeepSpeed has no experts with context parallelism");
  EXPECT_EQ(reason("torchtitan", with_context), "");
  const auto with_tensor = [](Layout& l) {
    l.tensor = 2, l.data = 4, l.shard = 4, l.sequence_parallel = true;
  };
  EXPECT_EQ(reason("automodel", with_tensor)
                .find("MPT plans no experts with tensor parallelism for NeMo AutoModel (line: nemo"),
            0u);
  EXPECT_EQ(reason("torchtitan", with_tensor), "");
}

TEST(Supports, ModelsAreRefusedByTheFeatureThatIsMissing) {
  const Layout l = plain(own_runtime());
  EXPECT_EQ(why(own_runtime(), l, kWorkload, "gemma2-27b").find("lacks"), std::string::npos);
  EXPECT_EQ(why(own_runtime(), l, kWorkload, "gpt-oss-20b").find("lacks"), std::string::npos);
  EXPECT_NE(why(own_runtime(), l, kWorkload, "bloom-176b").find("alibi positions"), std::string::npos);
  EXPECT_EQ(why(own_runtime(), l, kWorkload, "deepseek-v3")
                .find(models::words_of(models::Value::next_token_layers)),
            std::string::npos);
  EXPECT_NE(why(own_runtime(), l, kWorkload, "deepseek-v3.2").find("sparse attention"), std::string::npos);
  EXPECT_NE(why(own_runtime(), l, kWorkload, "nemotron-h-56b").find("mamba2 mixers"), std::string::npos);
  const Framework& titan = *find_framework("torchtitan");
  EXPECT_NE(why(titan, plain(titan), kWorkload, "deepseek-v3")
                .find(models::words_of(models::Value::next_token_layers)),
            std::string::npos)
      << "whoever plans asks for the model that it trains";
}

TEST(Supports, WindowsNeedHeadsForTokensInMegatron) {
  const Framework& megatron = *find_framework("megatron-core");
  Layout l = plain(megatron);
  l.context = 2, l.data = 4;
  EXPECT_NE(why(megatron, l, kWorkload, "mistral-7b").find("no ring attention with sliding windows"),
            std::string::npos);
  l.context_method = ContextMethod::all_to_all;
  EXPECT_EQ(why(megatron, l, kWorkload, "mistral-7b"), "");
}

TEST(Supports, WhatAlwaysOverlapsCannotBeSwitchedOff) {
  const auto reason = [](const char* name, bool gather = true) {
    const Framework& framework = *find_framework(name);
    Layout l = plain(framework);
    l.overlap_gradient_reduce = false;
    l.overlap_parameter_gather = l.overlap_parameter_gather && gather;
    return why(framework, l);
  };
  EXPECT_EQ(reason("torchtitan"), "torchtitan overlaps gradient reduce with compute, always");
  EXPECT_NE(reason("transformers-fsdp"), "");
  EXPECT_EQ(reason("deepspeed"), "") << "overlap_comm";
  EXPECT_EQ(reason("megatron-core", false), "");
  EXPECT_NE(reason("megatron-core"), "") << "--overlap-param-gather needs --overlap-grad-reduce";
  // One replica exchanges nothing, and one stage hands nothing on.
  const Framework& pytorch = *find_framework("pytorch");
  Layout one = plain(pytorch);
  one.data = one.shard = 1;
  one.zero = 0;
  one.tensor = 8;
  one.overlap_gradient_reduce = one.overlap_parameter_gather = one.overlap_transfer = false;
  EXPECT_EQ(why(pytorch, one), "");
}

TEST(Supports, SharesHoldWholeGroupsOfContextAndExpertRanks) {
  const Framework& titan = *find_framework("torchtitan");
  Layout l = plain(titan);
  l.zero = 3, l.shard = 2;
  EXPECT_EQ(why(titan, l, kWorkload, "mixtral-8x7b"), "");
  l.expert = 8;
  EXPECT_NE(why(titan, l, kWorkload, "mixtral-8x7b").find("whole groups of context and expert ranks"),
            std::string::npos);
  l.shard = 8;
  EXPECT_EQ(why(titan, l, kWorkload, "mixtral-8x7b"), "");
  Layout context = plain(titan);
  context.context = 4, context.data = 4, context.zero = 3, context.shard = 2;
  EXPECT_NE(why(titan, context), "");
  context.shard = 8;
  EXPECT_EQ(why(titan, context), "");
}

TEST(Supports, TiedEmbeddingsStayOutOfPyTorchsPipelines) {
  for (const auto& [name, refused] : {std::pair{"torchtitan", true},
                                      {"automodel", true},
                                      {"pytorch", true},
                                      {"deepspeed", false},
                                      {"megatron-core", false}}) {
    const Framework& framework = *find_framework(name);
    Layout l = plain(framework);
    l.pipeline = 2, l.data = 4, l.shard = 4, l.layers_per_stage = {8, 8};
    const std::vector<int64_t>& stages = framework.abilities.zero_in_pipeline;
    l.zero = *std::max_element(stages.begin(), stages.end());
    EXPECT_EQ(why(framework, l, kWorkload, "llama3.2-1b").find("shares the embedding") != std::string::npos,
              refused)
        << name;
  }
}

TEST(Supports, ProductsIn4BitsNeedSizesOfWholeBlocks) {
  const Framework& titan = *find_framework("torchtitan");
  Layout l = plain(titan);
  l.precision = Precision::nvfp4;
  EXPECT_EQ(why(titan, l), "");
  l.tensor = 8;
  l.sequence_parallel = true;
  EXPECT_EQ(why(titan, l), "") << "one head of 128 keys on each rank";
  EXPECT_NE(why(titan, l, kWorkload, "llama3.2-1b").find("a rank has 4096, 2048, 256, 64, 1024"),
            std::string::npos);
  l.precision = Precision::bf16;
  EXPECT_EQ(why(titan, l, kWorkload, "llama3.2-1b"), "");
}

TEST(Supports, DeepSpeedDoesNotSpreadExpertsWithBiases) {
  const Framework& deepspeed = *find_framework("deepspeed");
  Layout l = plain(deepspeed);
  l.zero = 2, l.expert = 8;
  EXPECT_NE(why(deepspeed, l, kWorkload, "gpt-oss-20b").find(models::words_of(models::Value::mlp_bias)),
            std::string::npos);
  EXPECT_NE(why(deepspeed, l, kWorkload, "mixtral-8x7b").find("_CanRecordRegistry.get()"), std::string::npos);
}

TEST(Supports, AutoModelSpreadsExpertsOfItsOwnClassesAlone) {
  const Framework& automodel = *find_framework("automodel");
  Layout spread = plain(automodel);
  spread.zero = 3, spread.shard = 8, spread.expert = 8;
  EXPECT_NE(why(automodel, spread, kWorkload, "mixtral-8x7b").find("in its own classes"), std::string::npos);
  EXPECT_EQ(why(automodel, spread, kWorkload, "qwen3-30b-a3b"), "");
}

// FSDP2 cuts dimension 0, which of transformers' stacked experts is their number.
TEST(Supports, ShardsOfTheTrainerHoldWholeExperts) {
  const Framework& trainer = *find_framework("transformers-fsdp");
  const auto with_shards = [&](const char* model, int64_t data, int64_t shard) {
    Layout l = plain(trainer);
    l.execution = load_framework(trainer.name, "");
    l.data = data, l.shard = shard;
    return why(trainer, l, {data, 4096}, model);
  };
  EXPECT_NE(with_shards("mixtral-8x7b", 64, 64).find("deals out whole experts over 64 shards"),
            std::string::npos);
  EXPECT_NE(with_shards("qwen3-30b-a3b", 48, 48), "");
  EXPECT_NE(with_shards("gpt-oss-120b", 256, 256), "");
  EXPECT_EQ(with_shards("mixtral-8x7b", 64, 8), "");
  EXPECT_EQ(with_shards("qwen3-30b-a3b", 64, 64), "");
  EXPECT_EQ(with_shards("llama3-70b", 48, 48), "");
}

TEST(PartialRecompute, LevelsRiseFromNoneToAll) {
  for (const PartialRecompute rule : {PartialRecompute::same_count, PartialRecompute::every_nth}) {
    for (const int64_t layers : {int64_t{3}, int64_t{7}, int64_t{8}}) {
      int64_t before = 0;
      EXPECT_EQ(recomputed_at_level(rule, 0, 8, layers), 0);
      for (int64_t level = 1; level <= 8; ++level) {
        const int64_t now = recomputed_at_level(rule, level, 8, layers);
        EXPECT_GE(now, before);
        before = now;
      }
      EXPECT_EQ(before, layers);
    }
  }
  EXPECT_EQ(recomputed_at_level(PartialRecompute::every_nth, 8 - 3 + 1, 8, 8), 3) << "0, 3 and 6";
}

// Attention goes round a ring while other mixers exchange heads (Megatron-LM, mamba_context_parallel.py).
TEST(Supports, RingAttentionBesideMixersThatExchangeHeads) {
  const ModelSpec model = models::load_model("nemotron-3-nano");
  Layout layout;
  layout.data = layout.context = 2;
  layout.precision = Precision::bf16;
  layout.context_method = ContextMethod::ring;
  layout.layers_per_stage = {model.layers.count()};
  layout.zero = 1;
  layout.shard = 4;
  layout.overlap_gradient_reduce = layout.overlap_parameter_gather = true;
  const Workload workload{8, 4096};
  EXPECT_FALSE(supports(*find_framework("megatron-bridge"), model, layout, workload));
  layout.zero = 3;
  const auto no = supports(*find_framework("automodel"), model, layout, workload);
  ASSERT_TRUE(no);
  EXPECT_NE(no->reason.find("beside mixers that exchange heads"), std::string::npos) << no->reason;
  const ModelSpec kimi = models::load_model("kimi-linear-48b-a3b"), gemma = models::load_model("gemma3-1b");
  layout.layers_per_stage = {kimi.layers.count()};
  EXPECT_FALSE(supports(*find_framework("automodel"), kimi, layout, workload))
      << "its class has its own ways";
  layout.layers_per_stage = {gemma.layers.count()};
  const auto windows = supports(*find_framework("automodel"), gemma, layout, workload);
  ASSERT_TRUE(windows);
  EXPECT_NE(windows->reason.find("ring attention with sliding windows"), std::string::npos);
  layout.context = 3;
  EXPECT_TRUE(check_layout(model, layout, workload)) << "64 heads of Mamba";
}

// Of context ranks that choose frequencies by the positions that they see.
// tests/frameworks/rotary_by_rank_test.py asks transformers itself for the same cases.
TEST(Supports, ContextRanksRotateAlikeOrAreRefused) {
  using K = RotaryScalingKind;
  const auto is_apart = [](const char* framework, K kind, int64_t original, int64_t ranks) {
    ModelSpec model = models::load_model("llama3.2-1b");
    for (auto& [name, layer] : model.layers.kinds)
      layer.attention->rotary->scaling = RotaryScaling{.kind = kind, .original_positions = original};
    Layout layout;
    layout.context = ranks;
    layout.precision = Precision::bf16;
    const Framework& judge = *find_framework(framework);
    layout.context_method = judge.abilities.context_methods.front();
    layout.layers_per_stage = {model.layers.count()};
    layout.zero = 3;
    layout.shard = ranks;
    layout.overlap_gradient_reduce = layout.overlap_parameter_gather = true;
    const auto no = supports(judge, model, layout, {8, 32768});
    EXPECT_TRUE(!no || no->constraint == "trains wrong") << no->reason;
    return no.has_value();
  };
  for (const char* framework : {"transformers-deepspeed", "deepspeed"}) {
    EXPECT_FALSE(is_apart(framework, K::longrope, 32768, 2)) << "no sequence is longer";
    EXPECT_TRUE(is_apart(framework, K::longrope, 16384, 2));
    EXPECT_FALSE(is_apart(framework, K::longrope, 16383, 2)) << "all ranks see more";
    EXPECT_TRUE(is_apart(framework, K::longrope, 4096, 8));
    EXPECT_FALSE(is_apart(framework, K::longrope, 4096, 4));
    EXPECT_TRUE(is_apart(framework, K::dynamic, 4096, 4));
    EXPECT_FALSE(is_apart(framework, K::dynamic, 32768, 4));
    EXPECT_FALSE(is_apart(framework, K::other, 4096, 8));
  }
  // Of a ring's two ranks the second sees the middle half.
  for (const char* framework : {"transformers-fsdp", "automodel"}) {
    EXPECT_TRUE(is_apart(framework, K::longrope, 24576, 2)) << framework;
    EXPECT_FALSE(is_apart(framework, K::longrope, 24575, 2)) << framework;
    EXPECT_TRUE(is_apart(framework, K::longrope, 32767, 2)) << framework;
    EXPECT_TRUE(is_apart(framework, K::dynamic, 4096, 2)) << framework;
  }
}

}  // namespace
}  // namespace mpt::frameworks
