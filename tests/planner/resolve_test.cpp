// SPDX-License-Identifier: Apache-2.0
#include "planner/request/resolve.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/quantity.h"
#include "core/ties.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"
#include "planner/api.h"

namespace mpt::planner {
namespace {

PlanRequest request(const std::string& model = "llama3-8b", const std::string& cluster = "dgx-h100:1") {
  PlanRequest r;
  r.model.name = model;
  r.cluster.name = cluster;
  r.global_batch = 64;
  return r;
}

std::string error_of(const PlanRequest& r) {
  try {
    resolve(r);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Resolve, TheUsualSequenceOfAModelFitsItsPositions) {
  EXPECT_EQ(resolve(request("gpt2-124m"))->problem.workload.sequence, 1024);
  PlanRequest opt = request("opt-30b");
  opt.framework = "transformers-fsdp";
  EXPECT_EQ(resolve(opt)->problem.workload.sequence, 2048) << "two rows of its table are spare";
  EXPECT_EQ(resolve(request("llama3-8b"))->problem.workload.sequence, 4096);
}

TEST(Resolve, SequencesMayBeLongerThanComputedPositions) {
  for (const char* name : {"llama3-8b", "qwen3-8b"}) {
    PlanRequest r = request(name);
    r.sequence = 262144;
    const auto resolved = resolve(r);
    EXPECT_EQ(resolved->problem.workload.sequence, 262144);
    EXPECT_EQ(resolved->problem.model.max_positions, 262144) << "as exports write it";
    EXPECT_TRUE(
        any_of(resolved->notes, [](const std::string& n) { return n.find("rope_scaling") != n.npos; }));
  }
  PlanRequest table = request("gpt2-124m");
  table.sequence = 2048;
  EXPECT_NE(error_of(table).find("at most the 1024 positions"), std::string::npos);
}

TEST(Resolve, ABatchMayBeSaidInTokens) {
  PlanRequest r = request();
  r.global_batch = 0;
  r.batch_tokens = 4'000'000;
  EXPECT_EQ(resolve(r)->problem.workload, (Workload{977, 4096}));
  r.sequence = 8192;
  EXPECT_EQ(resolve(r)->problem.workload, (Workload{488, 8192}));
  r.batch_tokens = 100;
  EXPECT_EQ(resolve(r)->request.global_batch, 1);
  r.global_batch = 8;
  EXPECT_NE(error_of(r).find("--batch-tokens"), std::string::npos);
}

TEST(Resolve, FillsInWhatIsNotSaid) {
  const auto resolved = resolve(request());
  const SearchProblem& p = resolved->problem;
  EXPECT_EQ(p.workload, (Workload{64, 4096}));
  EXPECT_EQ(p.ranks, 8);
  EXPECT_EQ(p.precision, Precision::bf16);
  EXPECT_EQ(p.execution.framework, "megatron-core");
  ASSERT_NE(p.framework, nullptr);
  EXPECT_EQ(p.framework->name, "megatron-core");
  EXPECT_TRUE(p.overlaps.gradient_reduce && p.overlaps.parameter_gather && p.overlaps.transfer);
  EXPECT_FALSE(p.overlaps.tensor || p.overlaps.exchange);
  EXPECT_TRUE(resolved->notes.empty());
  const auto on_cpus = resolve(request("gpt2-124m", "this-machine:2"));
  EXPECT_EQ(on_cpus->problem.precision, Precision::fp32);
  EXPECT_EQ(on_cpus->problem.execution.framework, "mpt");
  EXPECT_EQ(on_cpus->problem.workload.sequence, 1024) << "the model's limit";
}

bool has_note(const Resolved& resolved, const std::string& words) {
  return std::any_of(resolved.notes.begin(), resolved.notes.end(),
                     [&](const std::string& note) { return note.find(words) != std::string::npos; });
}

TEST(Resolve, PlansModelsThatRunAndThatMptDoesNotWriteYet) {
  const auto resolved = resolve(request("nemotron-3-super", "dgx-h100:8"));
  EXPECT_EQ(resolved->problem.framework->name, "megatron-core");
  EXPECT_TRUE(has_note(*resolved, "MPT does not write"));
  EXPECT_TRUE(has_note(*resolved, "megatron-core 0.19.2, megatron/core"));
  EXPECT_FALSE(has_note(*resolve(request()), "MPT does not write"));
}

// Whoever names no framework gets an answer: of Megatron-LM, or of the first that trains the model.
TEST(Resolve, AModelOfTheZooHasAFrameworkByDefault) {
  size_t others = 0;
  for (const models::ZooModel& model : models::zoo_models()) {
    const auto resolved = resolve(request(model.name, "dgx-h100:64"));
    const std::string& framework = resolved->problem.execution.framework;
    const bool usual = framework == "megatron-core";
    EXPECT_EQ(has_note(*resolved,
                       "--framework megatron-core does not train this: planned for --framework " + framework),
              !usual)
        << model.name;
    EXPECT_EQ(resolved->request.framework, usual ? "" : framework) << model.name;
    others += usual ? 0 : 1;
    PlanRequest asked = request(model.name, "dgx-h100:64");
    asked.framework = "megatron-core";
    EXPECT_EQ(error_of(asked) == "accepted", usual) << model.name;
  }
  EXPECT_GT(others, 40u);
  PlanRequest adapters = request("llama3-8b");
  adapters.lora = 16;
  EXPECT_NE(resolve(adapters)->problem.execution.framework, "megatron-core") << "which has no LoRA";
  adapters.layout = Layout{};
  EXPECT_NE(error_of(adapters), "accepted") << "a layout names what runs it";
}

TEST(Resolve, NamesFrameworksThatTrainWhatOneDoesNotRun) {
  PlanRequest refused = request("bloom-176b", "dgx-h100:64");
  refused.framework = "megatron-core";
  const std::string error = error_of(refused);
  EXPECT_NE(error.find("megatron/training/arguments.py:2314"), std::string::npos) << error;
  const size_t at = error.find("--framework ");
  ASSERT_NE(at, std::string::npos) << error;
  PlanRequest other = request("bloom-176b", "dgx-h100:64");
  other.framework = error.substr(at + 12, error.find_first_of(" ,", at + 12) - at - 12);
  EXPECT_EQ(error_of(other), "accepted") << other.framework;
}

TEST(Resolve, LeavesOutNextTokenLayersThatATrainerLeavesOut) {
  PlanRequest r = request("deepseek-v3", "dgx-h100:64");
  EXPECT_EQ(resolve(r)->problem.model.next_token_layers, 1) << "Megatron-LM trains them";
  r.cluster.value = resolve(r)->problem.cluster;
  r.cluster.value->host_memory_bytes = 0;  // a host of 2 TB does not build it for the Trainer
  for (const char* framework : {"transformers-fsdp", "torchtitan", "deepspeed", "pytorch"}) {
    r.framework = framework;
    const auto resolved = resolve(r);
    EXPECT_EQ(resolved->problem.model.next_token_layers, 0) << framework;
    EXPECT_TRUE(has_note(*resolved, "without its next-token layers")) << framework;
  }
  r.framework = "automodel";
  r.model.name = "qwen3.5-27b";
  EXPECT_EQ(resolve(r)->problem.model.next_token_layers, 1);
}

TEST(Resolve, GpusBeforeAmpereHaveNoBf16) {
  EXPECT_EQ(resolve(request("llama3-8b", "dgx-1-v100:4"))->problem.precision, Precision::fp16);
  PlanRequest r = request("llama3-8b", "dgx-1-v100:4");
  r.precision = Precision::bf16;
  EXPECT_NE(error_of(r).find("v100-sxm-32gb has no products in bf16"), std::string::npos) << error_of(r);
  r = request("llama3-8b", "dgx-a100:1");
  EXPECT_EQ(resolve(r)->problem.precision, Precision::bf16);
}

// Without bf16 or fp16 DeepSpeed's engine leaves weights in fp32.
TEST(Resolve, FrameworksThatKeepWeightsIn16BitsKeepAllIn32InFp32) {
  for (const auto& [framework, optimizer] :
       {std::pair{"deepspeed", 12}, {"transformers-deepspeed", 12}, {"automodel", 8}}) {
    PlanRequest r = request();
    r.framework = framework;
    r.precision = Precision::fp32;
    const StateBytes& states = resolve(r)->problem.execution.states;
    EXPECT_EQ(states.weight_bytes, 4) << framework;
    EXPECT_EQ(states.gradient_bytes, 4) << framework;
    EXPECT_EQ(states.optimizer_bytes, optimizer) << framework;
    r.gradients = Precision::bf16;
    EXPECT_NE(error_of(r).find("--gradients"), std::string::npos) << framework;
  }
}

TEST(Resolve, AutoModelKeepsAllStatesInThePrecisionOfItsWeights) {
  PlanRequest r = request();
  r.framework = "automodel";
  const auto states = [&] {
    const StateBytes& s = resolve(r)->problem.execution.states;
    return std::vector<int64_t>{s.weight_bytes, s.gradient_bytes, s.optimizer_bytes, s.reduced_bytes};
  };
  EXPECT_EQ(states(), (std::vector<int64_t>{2, 2, 4, 4}));
  r.precision = Precision::fp32;
  EXPECT_EQ(states(), (std::vector<int64_t>{4, 4, 8, 4}));
}

TEST(Resolve, FineTuningWithHuggingFacesTrainer) {
  for (const char* framework : {"transformers-fsdp", "transformers-deepspeed"}) {
    PlanRequest r = request();
    r.framework = framework;
    r.lora = 16;
    EXPECT_TRUE(has_note(*resolve(r), "trains with LoRA")) << framework;
    r.frozen_weights = FrozenFormat::nf4;
    const auto resolved = resolve(r);
    EXPECT_EQ(resolved->problem.training.frozen_format, FrozenFormat::nf4);
    EXPECT_TRUE(has_note(*resolved, "export --to trl")) << framework;
    r.lora = 0;
    r.frozen_weights.reset();
    r.optimizer = OptimizerKind::adamw8;
    EXPECT_TRUE(!has_note(*resolve(r), "MPT does not write")) << framework;
  }
}

TEST(Resolve, PricesTheAttentionThatAClassHasByDefault) {
  const auto attention = [](const std::string& model, const std::string& framework,
                            const std::vector<std::string>& execution = {}) {
    PlanRequest r = request(model);
    r.framework = framework;
    r.execution = execution;
    return resolve(r)->problem.execution.kernels.attention;
  };
  for (const char* framework : {"transformers-ddp", "transformers-fsdp", "transformers-deepspeed"}) {
    EXPECT_EQ(attention("gpt-oss-20b", framework), AttentionKernel::plain) << framework;
    EXPECT_EQ(attention("gemma2-9b", framework), AttentionKernel::plain) << framework;
    EXPECT_EQ(attention("qwen3-8b", framework), AttentionKernel::sdpa) << framework;
    EXPECT_EQ(attention("gpt-oss-20b", framework, {"attention=flash2"}), AttentionKernel::flash2)
        << framework;
  }
  EXPECT_NE(attention("gpt-oss-20b", "torchtitan"), AttentionKernel::plain) << "a class of its own";
}

// By mpt.verify, nemo-automodel 0.7.0: Llama and Qwen2 have norms of one kernel.
TEST(Resolve, CountsCopiesOfNormsThatAClassTakesApart) {
  const auto bytes = [](const std::string& model) {
    PlanRequest r = request(model);
    r.framework = "automodel";
    return resolve(r)->problem.execution.kept.rms_norm_bytes;
  };
  for (const char* model : {"qwen3-8b", "mistral-7b", "phi3-mini"}) EXPECT_EQ(bytes(model), 4) << model;
  for (const char* model : {"llama3-8b", "qwen2.5-7b"}) EXPECT_EQ(bytes(model), 0) << model;
}

TEST(Resolve, PadsTheVocabularyForTheOwnRuntimeOnGpus) {
  PlanRequest r = request();
  r.framework = "mpt";
  EXPECT_EQ(resolve(r)->problem.execution.kernels.vocabulary_multiple, 128);
  const auto on_cpus = resolve(request("gpt2-124m", "this-machine:2"));
  EXPECT_EQ(on_cpus->problem.execution.kernels.vocabulary_multiple, 1);
}

TEST(Resolve, RefusesSplitsOfWhatIsNotThere) {
  PlanRequest r = request();
  r.bounds.expert = {2};
  EXPECT_NE(error_of(r).find("--ep: 2; expected 1: llama3-8b has no experts"), std::string::npos)
      << error_of(r);
  r.bounds.expert = {1, 2};
  EXPECT_EQ(error_of(r), "accepted");
  r.bounds.expert.clear();
  r.bounds.sequence_parallel = {Switch::on};
  r.bounds.tensor = {1};
  EXPECT_NE(error_of(r).find("--sp: on beside --tp 1"), std::string::npos) << error_of(r);
  r.bounds.tensor = {1, 2};
  EXPECT_EQ(error_of(r), "accepted");
}

TEST(Resolve, RefusesGpusThatTheFrameworkAloneFills) {
  ClusterSpec small = resolve(request())->problem.cluster;
  small.device.memory_bytes = kGiB;
  PlanRequest r = request();
  r.cluster.value = small;
  EXPECT_NE(error_of(r).find("--cluster: 1 GiB of memory on each GPU"), std::string::npos) << error_of(r);
}

TEST(Resolve, NamesFrameworksThatTrainInTheWayThatWasAsked) {
  PlanRequest r = request();
  r.framework = "mpt";
  r.lengths = {"200:4096"};
  const std::string refused = error_of(r);
  EXPECT_NE(refused.find("does not train with packed sequences"), std::string::npos) << refused;
  const bool any = refused.find("one that does: ") != std::string::npos;
  EXPECT_EQ(refused.find("name another --framework") != std::string::npos, any) << refused;
}

// Who plans for a framework on CPU ranks gets the overlaps that it cannot switch off.
TEST(Resolve, KeepsWhatAFrameworkAlwaysOverlapsOnCpusToo) {
  PlanRequest r = request("gpt2-124m", "this-machine:2");
  EXPECT_FALSE(resolve(r)->problem.overlaps.gradient_reduce);
  r.framework = "pytorch";
  const Overlaps overlaps = resolve(r)->problem.overlaps;
  EXPECT_TRUE(overlaps.gradient_reduce && overlaps.parameter_gather && overlaps.transfer);
}

// Each kind of GPU keeps the margin that it has in a cluster of its own.
TEST(Resolve, KeepsTheSameRoomOnJoinedClusters) {
  const int64_t alone = resolve(request("qwen3-30b-a3b", "dgx-h100:2"))->problem.memory_limit_bytes;
  const auto joined = resolve(request("qwen3-30b-a3b", "dgx-h100:1+dgx-h100:1"));
  EXPECT_EQ(joined->problem.memory_limit_bytes, alone);
  PlanRequest r = request("qwen3-30b-a3b", "dgx-a100-40gb:1+dgx-h100:1");
  for (const char* margin : {"", "20%"}) {
    r.memory_margin = margin;
    const auto mixed = resolve(r);
    for (size_t g = 0; g < 2; ++g) {
      PlanRequest part = r;
      part.cluster.name = g == 0 ? "dgx-a100-40gb:1" : "dgx-h100:1";
      EXPECT_EQ(mixed->problem.limit_bytes(g), resolve(part)->problem.memory_limit_bytes) << g << margin;
    }
  }
}

// What is likely to fit is told of the GPUs' memory, whatever limit was asked for.
TEST(Resolve, AJoinedClustersLimitDoesNotChangeHowLikelyAPlanFits) {
  PlanRequest r = request("llama3-8b", "dgx-h100:1+dgx-h100:1");
  const auto fits = [&r](const char* memory) {
    r.memory = memory;
    r.layout = Layout{};
    r.layout->data = r.layout->shard = 16;
    r.layout->zero = 1;
    r.layout->layers_per_stage = {32};
    return estimate(r).plan.prediction.confidence.fits;
  };
  ASSERT_TRUE(fits("").has_value());
  EXPECT_EQ(fits(""), fits("60GiB"));
}

TEST(Resolve, KeepsRoomInMemoryUnlessToldNotTo) {
  PlanRequest r = request();
  const int64_t with_room = resolve(r)->problem.memory_limit_bytes;
  r.memory_margin = "0";
  const int64_t without = resolve(r)->problem.memory_limit_bytes;
  r.memory_margin = "10%";
  const int64_t tenth = resolve(r)->problem.memory_limit_bytes;
  EXPECT_LT(with_room, without);
  EXPECT_EQ(tenth, int64_t(0.9 * double(without)));
  r.memory = "40GiB";
  EXPECT_EQ(resolve(r)->problem.memory_limit_bytes, 40 * kGiB);
}

TEST(Resolve, TellsInNotesWhatItChanged) {
  PlanRequest r = request();
  r.memory = "200GiB";
  r.framework = "megatron";
  const auto resolved = resolve(r);
  ASSERT_EQ(resolved->notes.size(), 2u);
  EXPECT_NE(resolved->notes[0].find("--framework megatron is called megatron-core"), std::string::npos);
  EXPECT_NE(resolved->notes[1].find("--memory 200GiB is more than"), std::string::npos);
}

// Names that people use for FSDP alone; PyTorch itself has pipelines, too.
TEST(Resolve, TakesFsdpAsShardingBesideTensorRanks) {
  using Degrees = std::vector<int64_t>;
  for (const char* name : {"fsdp", "fsdp2", "pytorch-fsdp2"}) {
    PlanRequest r = request();
    r.framework = name;
    const auto resolved = resolve(r);
    EXPECT_EQ(resolved->problem.bounds.pipeline, Degrees{1}) << name;
    EXPECT_EQ(resolved->problem.bounds.context, Degrees{1}) << name;
    EXPECT_TRUE(std::any_of(resolved->notes.begin(), resolved->notes.end(), [](const std::string& note) {
      return note.find("--framework pytorch has pipelines") != std::string::npos;
    }));
    r.bounds.pipeline = {2};
    EXPECT_NE(error_of(r).find("--pp: 2 with --framework "), std::string::npos) << error_of(r);
    r.bounds.pipeline = {1};
    r.bounds.context = {1, 2};
    EXPECT_NE(error_of(r).find("leave it out; --framework pytorch"), std::string::npos) << error_of(r);
    r.bounds.context.clear();
    r.bounds.zero = {1};
    EXPECT_NE(error_of(r).find("--zero: 1 with --framework "), std::string::npos) << error_of(r);
    r.beyond_framework = true;
    EXPECT_EQ(error_of(r), "accepted");
  }
  PlanRequest r = request();
  for (const char* name : {"pytorch", "torch", "torchtitan"}) {
    r.framework = name;
    EXPECT_TRUE(resolve(r)->problem.bounds.pipeline.empty()) << name;
  }
  r.framework = "fsdp2";
  const Plan found = plan(r);
  EXPECT_EQ(found.layout.pipeline * found.layout.context, 1);
  EXPECT_GE(found.layout.zero, 2);
  EXPECT_EQ(plan(found.request).layout, found.layout);
}

// Schedules that a framework takes as a file of rows are searched where somebody asks for them.
TEST(Resolve, SearchesSchedulesOfRowsWhereTheyAreAskedFor) {
  PlanRequest r = request();
  r.bounds.pipeline = {2};
  for (const char* name : {"pytorch", "torchtitan"}) {
    r.framework = name;
    r.execution = {"elementwise=eager", "loss=fp32"};  // with a chunked loss torchtitan trains none of these
    r.bounds.schedules.clear();
    const Plan by_default = plan(r);
    for (const RankedLayout& ranked : by_default.ranking)
      EXPECT_FALSE(frameworks::needs_rows(*frameworks::find_framework(name), ranked.layout.schedule))
          << layout_name(ranked.layout);
    const auto told = [](const std::string& line) {
      return line.find("runs zb-h1 only from a file of its rows; --schedule zb-h1") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(by_default.rejected.begin(), by_default.rejected.end(), told));
    r.bounds.schedules = {"zb-h1"};
    EXPECT_EQ(plan(r).layout.schedule, "zb-h1");
  }
}

TEST(Resolve, RefusesWhatDoesNotGoTogether) {
  PlanRequest r = request();
  r.model.name.clear();
  EXPECT_NE(error_of(r).find("--model: missing"), std::string::npos) << error_of(r);
  r = request("gpt2-124m");
  r.sequence = 1 << 20;
  EXPECT_NE(error_of(r).find("--seq"), std::string::npos);
  r = request();
  r.gpus = 9;
  EXPECT_NE(error_of(r).find("at most 8"), std::string::npos);
  r = request("llama3-8b", "dgx-a100:1");
  r.precision = Precision::fp8;
  EXPECT_NE(error_of(r).find("--precision"), std::string::npos);
  r = request();
  r.bounds.schedules = {"1f1c"};
  EXPECT_NE(error_of(r).find("--schedule"), std::string::npos);
  r = request();
  r.overlaps = {"none", "tensor"};
  EXPECT_NE(error_of(r).find("--overlap"), std::string::npos);
  r = request();
  r.recompute_modules = {"mpl"};
  EXPECT_NE(error_of(r).find("did you mean \"mlp\""), std::string::npos) << error_of(r);
  for (const auto& [module, lacks] : std::map<std::string, std::string>{
           {"shared_experts", "no experts of all tokens"}, {"gdn_norm_out", "no gated delta rule"}}) {
    r = request();
    r.recompute_modules = {module};
    EXPECT_NE(error_of(r).find(lacks), std::string::npos) << error_of(r);
  }
  r = request();
  r.framework = "mpt";
  r.dispatch = Dispatch::once;
  EXPECT_NE(error_of(r).find("--dispatch"), std::string::npos);
}

TEST(Plan, HoldsItsRequestAndIsRepeatedByIt) {
  PlanRequest r = request();
  r.bounds.tensor = {1, 2};
  const Plan first = plan(r);
  EXPECT_EQ(first.request, r);
  const Plan second = plan(first.request);
  EXPECT_EQ(second.layout, first.layout);
  EXPECT_EQ(second.prediction, first.prediction);
}

TEST(Plan, SaysWhatHelpsWhereNothingFits) {
  PlanRequest r = request();
  r.bounds.data = {8};
  r.bounds.zero = {0};
  try {
    plan(r);
    FAIL() << "8B parameters with their states on each of 8 GPUs";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("leave out"), std::string::npos) << error.what();
  }
}

TEST(Estimate, OfAPlansLayoutIsThePlan) {
  const Plan best = plan(request());
  PlanRequest again = request_of(best);
  const Estimated e = estimate(again);
  EXPECT_TRUE(e.fits());
  EXPECT_EQ(e.plan.layout, best.layout);
  EXPECT_DOUBLE_EQ(e.plan.prediction.step_time_s, best.prediction.step_time_s);
  EXPECT_EQ(e.plan.prediction.memory, best.prediction.memory);
}

TEST(Estimate, TakesTheLayoutThatTheBoundsName) {
  PlanRequest r = request();
  r.bounds.tensor = {2};
  r.bounds.pipeline = {2};
  const Estimated e = estimate(r);
  EXPECT_EQ(e.plan.layout.tensor, 2);
  EXPECT_EQ(e.plan.layout.pipeline, 2);
  EXPECT_EQ(e.plan.layout.data, 2);
  EXPECT_EQ(e.plan.layout.zero, 0);
}

// torchtitan and AutoModel run FSDP untold, FSDP2 cannot but, Megatron-LM and DeepSpeed share nothing out.
TEST(Estimate, SharesOutWhatTheFrameworkDoesUntold) {
  const auto zero_of = [&](const char* framework, int64_t tensor, int64_t pipeline = 1) {
    PlanRequest r = request();
    r.framework = framework;
    r.bounds.tensor = {tensor};
    r.bounds.pipeline = {pipeline};
    const Estimated e = estimate(r);
    EXPECT_FALSE(e.refusal && e.refusal->constraint == "zero") << e.refusal->reason;
    return e.plan.layout.zero;
  };
  EXPECT_EQ(zero_of("fsdp2", 2), 3);
  EXPECT_EQ(zero_of("fsdp2", 8), 0) << "no replicas";
  for (const char* framework : {"torchtitan", "automodel"}) {
    EXPECT_EQ(zero_of(framework, 2), 3) << framework;
    EXPECT_EQ(zero_of(framework, 1), 3) << framework;
  }
  EXPECT_EQ(zero_of("torchtitan", 1, 2), 2) << "weights stay gathered in a pipeline";
  EXPECT_EQ(zero_of("automodel", 1, 2), 3) << "they reshard there, too, against its documentation";
  EXPECT_EQ(zero_of("transformers-fsdp", 1), 3);
  EXPECT_EQ(zero_of("megatron-core", 1), 0);
  EXPECT_EQ(zero_of("deepspeed", 1), 0);
}

TEST(Plan, SaysWhatEachLayoutIsThereFor) {
  PlanRequest r = request("llama3-70b", "dgx-h100:8");
  r.global_batch = 512;
  const Plan found = plan(r);
  const auto kinds = [](const RankedLayout& ranked) {
    return kinds_of_parallelism(ranked.layout.degrees(), ranked.layout.expert);
  };
  const auto is = [](Role role) {
    return [role](const RankedLayout& ranked) { return ranked.role == role; };
  };
  const auto& ranking = found.ranking;
  ASSERT_EQ(ranking.front().role, Role::recommended);
  EXPECT_EQ(std::count_if(ranking.begin(), ranking.end(), is(Role::recommended)), 1);
  const auto simplest = std::find_if(ranking.begin(), ranking.end(), is(Role::simplest));
  if (kinds(ranking.front()) <= 1) {
    EXPECT_EQ(simplest, ranking.end());
  } else {
    ASSERT_NE(simplest, ranking.end());
    EXPECT_LE(kinds(*simplest), 2);
  }
}

TEST(Plan, ShowsDataParallelismAlone) {
  const std::pair<const char*, const char*> asked[] = {
      {"llama3-8b", "torchtitan"}, {"llama3-8b", "megatron-core"}, {"qwen3-8b", "automodel"}};
  for (const auto& [model, framework] : asked) {
    PlanRequest r = request(model, "dgx-h100:1");
    r.framework = framework;
    const Plan found = plan(r);
    const auto alone = find_if(found.ranking, [](const RankedLayout& row) { return row.layout.data == 8; });
    ASSERT_NE(alone, found.ranking.end()) << model << framework;
    EXPECT_TRUE(alone == found.ranking.begin() || alone->role == Role::simplest) << model << framework;
  }
}

// The layers that are proposed give the time that is promised; with them no others are.
TEST(Estimate, NamesLayersPerStageThatGain) {
  PlanRequest r = request("llama3-8b");
  r.sequence = 4096;
  r.bounds.pipeline = {8};
  r.bounds.recomputes = {Recompute::full};
  const Estimated even = estimate(r);
  EXPECT_EQ(even.plan.layout.layers_per_stage, std::vector<int64_t>(8, 4));
  const auto other = faster_stages(even);
  ASSERT_TRUE(other);
  EXPECT_LT(other->step_time_s, 0.99 * even.plan.prediction.step_time_s);
  EXPECT_LT(other->layers_per_stage.back(), 4) << "the head is work, too";
  r.layers_per_stage = other->layers_per_stage;
  const Estimated balanced = estimate(r);
  EXPECT_EQ(balanced.plan.layout.layers_per_stage, other->layers_per_stage);
  EXPECT_DOUBLE_EQ(balanced.plan.prediction.step_time_s, other->step_time_s);
  EXPECT_FALSE(faster_stages(balanced));
  r.layers_per_stage = {32};
  EXPECT_THROW(estimate(r), UserError) << "of eight stages";
  EXPECT_THROW(plan(r), UserError) << "a search divides them itself";
}

TEST(Resolve, SaysThatSingleCardsAreMachines) {
  const auto says_machines = [](const std::string& cluster) {
    const auto resolved = resolve(request("gpt2-124m", cluster));
    return std::any_of(resolved->notes.begin(), resolved->notes.end(), [](const std::string& note) {
      return note.find("machines with one GPU each") != std::string::npos &&
             note.find("rtx4090:1x8") != std::string::npos;
    });
  };
  EXPECT_TRUE(says_machines("rtx4090:8"));
  for (const char* plain : {"rtx4090:1", "rtx4090:1x8", "rtx4090:8x1", "dgx-h100:8", "rtx3090:1"})
    EXPECT_FALSE(says_machines(plain)) << plain;
}

TEST(Estimate, OfFewerRanksSaysWhatIsIdle) {
  PlanRequest r = request("llama3-8b", "dgx-h100:2");
  r.bounds.tensor = {8};
  r.bounds.data = {1};
  const Estimated e = estimate(r);
  ASSERT_FALSE(e.plan.notes.empty());
  EXPECT_NE(e.plan.notes.front().find("8 of 16 devices idle"), std::string::npos) << e.plan.notes.front();
}

TEST(Compare, GivesAPlanOrAReason) {
  PlanRequest large = request("llama3-405b");
  const std::vector<PlanOrReason> both = compare({request(), large});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_TRUE(both[0].plan.has_value());
  EXPECT_FALSE(both[1].plan.has_value());
  EXPECT_NE(both[1].reason.find("nothing fits"), std::string::npos);
}

}  // namespace
}  // namespace mpt::planner
