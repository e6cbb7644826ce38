// SPDX-License-Identifier: Apache-2.0
#include "frameworks/export_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <tuple>

#include "base/json.h"
#include "core/rank_grid.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"
#include "tests/support/golden.h"
#include "tests/support/make_plan.h"

namespace mpt::frameworks {
namespace {

Plan a_plan() {
  test::WantedPlan request{test::little_llama(), {8, 16}};
  request.pipeline = request.data = 2;
  return test::make_plan(request);
}

const ExportedFile& file_of(const Exported& exported, const std::string& name) {
  return *std::find_if(exported.files.begin(), exported.files.end(),
                       [&](const ExportedFile& file) { return file.name == name; });
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Reading refuses some of them; exports must not depend on that.
const char* const kHostileNames[] = {
    "evil\ntouch /tmp/x\n#",
    "evil\r\n#SBATCH --output=/tmp/x",
    "x\"\"\"\nimport os\nos.system('touch /tmp/x')\n\"\"\"",
    "x\"\"\";open(\"/tmp/x\",\"w\");\"\"\"",
    "'''; import os; '''",
    "a: b\n---\nkind: Pod",
    "back\\",
    "\\N{",
    "tab\tnul\x01 del\x7f escape\x1b[2J",
    "next line\xc2\x85 separator\xe2\x80\xa8 override\xe2\x80\xae",
    "no utf-8 \xff\xfe",
    "$(touch /tmp/x) `touch /tmp/x` ${HOME} {0} {}",
    "# \" ' \\",
};

// Lines are the same but for the title and the job's name, which are one line each.
TEST(Export, NamesCannotLeaveTheTitle) {
  const Plan plain = a_plan();
  for (const ExportTarget& target : export_targets()) {
    const Exported expected = target.write(plain);
    for (const char* name : kHostileNames) {
      Plan hostile = plain;
      hostile.model.name = hostile.cluster.name = name;
      const Exported exported = target.write(hostile);
      ASSERT_EQ(exported.files.size(), expected.files.size());
      for (size_t f = 0; f < exported.files.size(); ++f) {
        const auto lines = lines_of(exported.files[f].text), wanted = lines_of(expected.files[f].text);
        ASSERT_EQ(lines.size(), wanted.size()) << target.name << ": " << name;
        for (size_t l = 0; l < lines.size(); ++l) {
          const bool holds_name = wanted[l].find(plain.model.name) != std::string::npos;
          EXPECT_TRUE(lines[l] == wanted[l] || holds_name) << target.name << ": " << lines[l];
          for (const char c : lines[l]) EXPECT_TRUE(c >= ' ' && c <= '~') << target.name << ": " << name;
        }
      }
    }
  }
}

TEST(Export, HostileNamesAsWritten) {
  Plan plan = a_plan();
  plan.cluster.name = "evil\ntouch /tmp/x\n#";
  std::string text;
  for (const char* name : kHostileNames) {
    plan.model.name = name;
    for (const char* target :
         {"megatron-core", "megatron-bridge", "torchtitan", "pytorch", "slurm", "kubernetes"}) {
      for (const ExportedFile& file : find_export_target(target).write(plan).files) {
        for (const std::string& line : lines_of(file.text)) {
          if (line.find("predicted") != std::string::npos || line.find("job-name") != std::string::npos)
            text += fmt::format("{:<17}{}\n", file.name, line);
        }
      }
    }
  }
  test::expect_golden("planner/hostile_exports.txt", text);
}

TEST(Export, JobsHaveNamesThatYamlReadsAsText) {
  Plan plan = a_plan();
  for (const auto& [name, expected] : {std::pair{"7B", "name: plan-7b\n"},
                                       {"True", "name: plan-true\n"},
                                       {"null", "name: plan-null\n"},
                                       {"---", "name: plan\n"},
                                       {"1e5", "name: plan-1e5\n"},
                                       {"Llama 3.1", "name: llama-3-1\n"}}) {
    plan.model.name = name;
    EXPECT_NE(export_kubernetes(plan).files.front().text.find(expected), std::string::npos) << name;
  }
}

TEST(Export, StatesSharedOutOverPartOfTheReplicasComeBack) {
  test::WantedPlan request{test::little_llama(), {16, 16}};
  request.data = 8;
  request.zero = 1;
  request.shard = 2;
  const Plan plan = test::make_plan(request);
  const std::string file = testing::TempDir() + "/hybrid_args.txt";
  const std::string arguments = file_of(export_megatron_core(plan), "megatron_args.txt").text;
  EXPECT_NE(arguments.find("--num-distributed-optimizer-instances 4\n"), std::string::npos) << arguments;
  write_file_atomically(file, arguments);
  const Imported back = import_megatron_core(file);
  EXPECT_EQ(back.shard_groups, 4);
  EXPECT_EQ(back.layout.zero, 1);
  const std::string mesh = file_of(export_pytorch(plan), "mpt_train.py").text;
  EXPECT_NE(mesh.find("MESH = [1, 4, 2, 1, 1]\nAXES = [\"pp\", \"dp_replicate\", \"dp_shard\""),
            std::string::npos)
      << mesh;
}

// The mesh numbers ranks with its last axis fastest.
TEST(Export, MeshFollowsThePlansRankOrder) {
  for (const RankOrder order : {RankOrder::pipeline_outermost, RankOrder::data_outermost}) {
    test::WantedPlan request{test::little_llama(), {16, 16}};
    request.tensor = request.pipeline = 2;
    request.data = 4;
    request.zero = 2;
    request.order = order;
    const Plan plan = test::make_plan(request);
    const RankGrid grid(plan.layout);
    const std::string text = file_of(export_pytorch(plan), "mpt_train.py").text;
    const auto place = [&](const char* name) { return text.find(fmt::format("\"{}\"", name)); };
    EXPECT_EQ(place("pp") < place("dp_shard"), grid.stride(Axis::pipeline) > grid.stride(Axis::data));
    EXPECT_LT(place("dp_shard"), place("tp"));
  }
}

Plan plan_for_torchtitan(int64_t zero, int64_t shard, int64_t pipeline, const char* schedule,
                         int64_t chunks) {
  test::WantedPlan request{models::load_model("llama3-8b"), {32, 2048}};
  request.tensor = 2;
  request.sequence_parallel = true;
  request.pipeline = pipeline;
  request.chunks = chunks;
  request.schedule = schedule;
  request.data = 4;
  request.zero = zero;
  request.shard = shard;
  request.precision = Precision::bf16;
  request.overlap_gradient_reduce = request.overlap_parameter_gather = true;
  Plan plan = test::make_plan(request);
  plan.layout.execution = find_framework("torchtitan")->execution;
  return plan;
}

// Files in a folder of their own; the first one is what imports read.
std::string written(const Exported& exported, const std::string& name) {
  const std::filesystem::path folder = testing::TempDir() + "/export_" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  for (const ExportedFile& file : exported.files) write_file_atomically(folder / file.name, file.text);
  return folder / exported.files.front().name;
}

// What torchtitan's configuration can say comes back.
TEST(Export, TorchtitansConfigurationComesBack) {
  const auto check = [](int64_t zero, int64_t shard, int64_t pipeline, const char* schedule, int64_t chunks,
                        bool offload = false) {
    Plan plan = plan_for_torchtitan(zero, shard, pipeline, schedule, chunks);
    plan.layout.offload_optimizer = offload;
    const Imported back = import_torchtitan(written(export_torchtitan(plan), "torchtitan"));
    ASSERT_TRUE(back.model);
    EXPECT_TRUE(back.notes.empty()) << back.notes.front();
    EXPECT_EQ(*back.model, plan.model);
    EXPECT_EQ(back.workload, plan.workload);
    EXPECT_EQ(back.shard_groups, plan.layout.replicas() / plan.layout.shard);
    EXPECT_EQ(back.execution, std::vector<std::string>{}) << "torchtitan's own";
    Layout layout = back.layout, wanted = plan.layout;
    layout.execution = wanted.execution;
    layout.shard = wanted.shard;                      // follows from the groups
    layout.expert_tensor = wanted.expert_tensor = 0;  // of a dense model
    EXPECT_EQ(layout_name(layout), layout_name(wanted));
    EXPECT_EQ(layout, wanted);
  };
  check(3, 4, 1, "1f1b", 1);
  check(3, 2, 1, "1f1b", 1);
  check(2, 4, 1, "1f1b", 1);
  check(3, 4, 2, "1f1b", 1);
  check(2, 4, 4, "interleaved", 2);
  check(3, 2, 4, "zb-v", 2);
  check(2, 4, 4, "zb-h1", 1);
  check(2, 4, 4, "v-half", 2);
  check(3, 4, 1, "1f1b", 1, true);
  check(2, 2, 2, "1f1b", 1, true);
}

// The function's name only places stages where a CSV file has the order: V-shaped ones as ZBVZeroBubble does.
TEST(Export, TorchtitanPlacesStagesAsTheCsvDoes) {
  for (const auto& [schedule, chunks, name] : {std::tuple{"zb-h1", 1, "1F1B"},
                                               {"zb-v", 2, "ZBVZeroBubble"},
                                               {"v-half", 2, "ZBVZeroBubble"},
                                               {"v-min", 2, "ZBVZeroBubble"},
                                               {"interleaved", 2, "Interleaved1F1B"},
                                               {"zb-interleaved", 2, "InterleavedZeroBubble"},
                                               {"dualpipe-v", 2, "DualPipeV"}}) {
    const std::string text =
        export_torchtitan(plan_for_torchtitan(2, 4, 4, schedule, chunks)).files.front().text;
    EXPECT_NE(text.find(fmt::format("pipeline_parallel_schedule=\"{}\"", name)), std::string::npos)
        << schedule;
    const bool exact = !needs_rows(*find_framework("torchtitan"), schedule);
    EXPECT_EQ(text.find("os.path.join(HERE, \"schedule.csv\")") == std::string::npos, exact) << schedule;
  }
}

TEST(Export, TorchtitanConvertsWhatThePlanRunsIn8Bits) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  plan.layout.precision = Precision::fp8;
  std::string text = export_torchtitan(plan).files.front().text;
  EXPECT_NE(text.find("Float8LinearConverter.Config(filter_fqns=[\"lm_head\"]"), std::string::npos) << text;
  plan.layout.execution.edit().kernels.fp8_head = true;
  text = export_torchtitan(plan).files.front().text;
  EXPECT_EQ(text.find("filter_fqns"), std::string::npos) << text;
  const Imported back = import_torchtitan(written(export_torchtitan(plan), "torchtitan"));
  EXPECT_EQ(back.layout.precision, Precision::fp8);
  EXPECT_EQ(back.execution, std::vector<std::string>{"fp8_head=true"});
}

TEST(Export, TorchtitanConvertsWhatThePlanRunsIn4Bits) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  plan.layout.precision = Precision::nvfp4;
  const std::string text = export_torchtitan(plan).files.front().text;
  EXPECT_NE(text.find("import NVFP4LinearConverter\n"), std::string::npos) << text;
  EXPECT_NE(text.find("converters=[NVFP4LinearConverter.Config(fqns=[\"layers\"], "), std::string::npos)
      << text;
  const Imported back = import_torchtitan(written(export_torchtitan(plan), "torchtitan"));
  EXPECT_EQ(back.layout.precision, Precision::nvfp4);
  EXPECT_EQ(back.execution, std::vector<std::string>{});
}

// mpt.verify showed a file whose loss kept no logits for a plan that counts them.
TEST(Export, TorchtitanKeepsTheLogitsThatThePlanCounts) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  for (const bool chunked : {false, true}) {
    plan.layout.execution.edit().kernels.loss = chunked ? LossKernel::chunked : LossKernel::fp32;
    const std::string text = export_torchtitan(plan).files.front().text;
    EXPECT_EQ(text.find("ChunkedLossWrapper") != std::string::npos, chunked) << text;
    EXPECT_NE(text.find("CrossEntropyLoss.Config(global_vocab_size"), std::string::npos) << text;
    const Imported back = import_torchtitan(written(export_torchtitan(plan), "torchtitan"));
    EXPECT_EQ(back.execution, chunked ? std::vector<std::string>{} : std::vector<std::string>{"loss=fused"});
  }
}

// torchtitan 0.3.0, loss.py: "ChunkedLossWrapper sequence length must be divisible by num_chunks".
TEST(Export, TorchtitansChunksDivideTheSequenceOfARank) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  plan.layout.execution.edit().kernels.loss = LossKernel::chunked;
  plan.layout.execution.edit().kernels.loss_chunks = 8;
  for (const auto& [sequence, cut] : {std::pair{4096, "Wrapper.Config(loss_fn="}, {2052, "num_chunks=4, "}}) {
    plan.workload.sequence = sequence;
    const std::string text = export_torchtitan(plan).files.front().text;
    EXPECT_NE(text.find(cut), std::string::npos) << text;
  }
}

Plan plan_for_deepspeed(int64_t tensor, int64_t context) {
  test::WantedPlan request{models::load_model("llama3-8b"), {32, 2048}};
  request.tensor = tensor;
  request.context = context;
  request.context_method = ContextMethod::all_to_all;
  request.data = 4;
  request.zero = 1;
  request.precision = Precision::bf16;
  return test::make_plan(request);
}

// Without this key accelerate starts the processes of all nodes from the first one, over ssh and a list of
// hosts.
TEST(Export, EveryNodeStartsItsOwnProcessesUnderAccelerate) {
  Plan plan = plan_for_deepspeed(1, 1);
  const auto yaml = [&] { return file_of(export_transformers_deepspeed(plan), "accelerate.yaml").text; };
  plan.cluster.devices_per_node = plan.layout.ranks();
  EXPECT_EQ(yaml().find("deepspeed_multinode_launcher"), std::string::npos);
  plan.cluster.devices_per_node = plan.layout.ranks() / 2;
  EXPECT_NE(yaml().find("deepspeed_multinode_launcher: standard"), std::string::npos) << yaml();
}

// Of FSDP's layers all recompute by accelerate's plugin, and every n-th by the Trainer.
TEST(Export, TheTrainerRecomputesEveryNthLayer) {
  Plan plan = plan_for_deepspeed(1, 1);
  plan.layout.recompute = Recompute::full;
  const auto arguments = [&](const Exported& e) {
    return parse_json(file_of(e, "train.json").text, "train");
  };
  EXPECT_EQ(arguments(export_transformers_deepspeed(plan)).at("activation_checkpointing"), true);
  plan.layout.recomputed_layers = {8};
  const Json every_4th = {{"every_n_layers", 4}};
  EXPECT_EQ(arguments(export_transformers_deepspeed(plan)).at("activation_checkpointing_kwargs"), every_4th);
  plan.layout.execution.edit().framework = "transformers-fsdp";
  plan.layout.zero = 3;
  const Exported fsdp = export_transformers_fsdp(plan);
  EXPECT_EQ(arguments(fsdp).at("activation_checkpointing_kwargs"), every_4th);
  EXPECT_EQ(arguments(fsdp).at("activation_checkpointing"), true);
  EXPECT_NE(file_of(fsdp, "accelerate.yaml").text.find("fsdp_activation_checkpointing: false"),
            std::string::npos);
  EXPECT_EQ(import_transformers(written(fsdp, "every_4th")).layout.recomputed_layers,
            std::vector<int64_t>{8});
  plan.layout.recomputed_layers.clear();
  EXPECT_EQ(arguments(export_transformers_fsdp(plan)).at("activation_checkpointing"), false);
}

// The Trainer multiplies micro-batch, accumulation and all ranks, and refuses another global batch.
// accelerate 1.15.0, accelerator.py:519: torchao's fp8 is refused beside efficient loading.
TEST(Export, TheTrainersFp8LoadsTheModelInEachProcess) {
  Plan plan = plan_for_deepspeed(1, 1);
  plan.layout.execution.edit().framework = "transformers-fsdp";
  for (const auto& [precision, loads] : {std::pair{Precision::fp8, "false"}, {Precision::bf16, "true"}}) {
    plan.layout.precision = precision;
    const Exported exported = export_transformers_fsdp(plan);
    EXPECT_NE(
        file_of(exported, "accelerate.yaml").text.find(std::string("cpu_ram_efficient_loading: ") + loads),
        std::string::npos);
    EXPECT_EQ(exported.needs.size(), precision == Precision::fp8 ? 2u : 0u);
  }
}

// transformers takes the checkpoint's type without it, and neither accelerate nor DeepSpeed widens that in
// fp32.
TEST(Export, TheTrainersFp32IsTheTypeOfTheWeightsToo) {
  for (const auto& [framework, write] : {std::pair{"transformers-fsdp", &export_transformers_fsdp},
                                         {"transformers-deepspeed", &export_transformers_deepspeed},
                                         {"transformers-ddp", &export_transformers_ddp}}) {
    Plan plan = plan_for_deepspeed(1, 1);
    plan.layout.execution.edit().framework = framework;
    const auto type = [&plan, write = write] {
      return parse_json(file_of(write(plan), "train.json").text, "train").value("dtype", "");
    };
    plan.layout.precision = Precision::fp32;
    EXPECT_EQ(type(), "float32") << framework;
    plan.layout.training.edit().adapter_rank = 8;
    EXPECT_EQ(type(), "") << framework << ": frozen weights stay as they are";
    plan.layout.training.edit().adapter_rank = 0;
    plan.layout.precision = Precision::bf16;
    EXPECT_EQ(type(), framework == std::string("transformers-ddp") ? "float32" : "") << framework;
  }
}

TEST(Export, TheTrainersDeepSpeedFileHasNoBatchOfItsOwnBesideContextRanks) {
  for (const int64_t context : {1, 4}) {
    const Exported exported = export_transformers_deepspeed(plan_for_deepspeed(1, context));
    const Json config = parse_json(file_of(exported, "deepspeed.json").text, "deepspeed.json");
    EXPECT_EQ(config.contains("train_batch_size"), context == 1) << context;
  }
}

// Routers say for themselves what they do: the judge of torchtitan compares it, from the model that stands
// there.
TEST(Export, TorchtitanHasTheRouterOfThePlansModel) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  plan.model = test::little_mixtral();
  plan.model.layers.change([](LayerKind& k) {
    k.moe->router_bias = true;
    k.moe->scores = RouterScores::sigmoid;
    k.moe->routed_scale = 2.5;
  });
  const std::string text = export_torchtitan(plan).files.front().text;
  EXPECT_NE(text.find("\"scores\": \"sigmoid\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"routed_scale\": 2.5"), std::string::npos) << text;
  EXPECT_NE(text.find("score_func=moe.get(\"scores\", \"softmax\")"), std::string::npos) << text;
  EXPECT_EQ(text.find("bias=moe["), std::string::npos);
}

// Exports for torchtitan have the parts of DeepSeek-V3, whatever the sizes.
TEST(Export, TorchtitanBuildsLatentAttention) {
  Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  plan.model = models::load_model("kimi-k2");
  const std::string text = export_torchtitan(plan).files.front().text;
  EXPECT_NE(
      text.find("from torchtitan.models.deepseek_v3 import make_mla_attention_config, model_registry\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("import DeepSeekV3Model as Model, DeepSeekV3TransformerBlock as Block\n"),
            std::string::npos)
      << text;
  for (const char* unused : {"make_gqa_config", "get_attention_config", "CosSinRoPE", "Float8"})
    EXPECT_EQ(text.find(unused), std::string::npos) << text;
}

TEST(Export, MarksOfTemplatesAreFilledAndOtherSignsStay) {
  const Plan plan = plan_for_torchtitan(3, 4, 1, "1f1b", 1);
  const std::string text = filled("job.yaml", plan, {{"nodes_text", ""}, {"command", "exec a@b"}});
  EXPECT_NE(text.find("- exec a@b\n"), std::string::npos) << text;
  EXPECT_NE(text.find("name: @name@\n"), std::string::npos) << text;
  EXPECT_NE(filled("run_megatron.sh", plan).find("\"${plan[@]}\" \"$@\"\n"), std::string::npos);
  EXPECT_THROW(filled("none.sh", plan), InternalError);
}

Json deepspeed_json(const Plan& plan) {
  return parse_json(file_of(export_deepspeed(plan), "deepspeed.json").text, "deepspeed.json");
}

// DeepSpeed compares train_batch_size with the product over all ranks, and knows degrees of both kinds.
TEST(Export, AutoModelsRecipeStartsFromAnyFolder) {
  Plan plan = a_plan();
  const Exported own = export_automodel(plan);
  const std::string recipe = file_of(own, "automodel.yaml").text;
  // The recipe builds both without a default; a model of its own has no tokenizer.
  EXPECT_NE(
      recipe.find("loss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n"),
      std::string::npos);
  EXPECT_NE(recipe.find("optimizer:\n  _target_: torch.optim.AdamW\n  fused: true\n"), std::string::npos);
  EXPECT_NE(recipe.find("  tokenizer: null\n"), std::string::npos) << recipe;
  const ExportedFile& script = file_of(own, "run_automodel.sh");
  EXPECT_TRUE(script.executable);
  EXPECT_NE(script.text.find("\"$here/automodel.yaml\" --model.config=\"$here\" \"$@\""), std::string::npos)
      << script.text;
  plan.model = models::load_model("llama3-8b");
  EXPECT_EQ(file_of(export_automodel(plan), "run_automodel.sh").text.find("--model.config"),
            std::string::npos);
}

TEST(Export, AutoModelComputesIn16BitsWithoutFsdp) {
  test::WantedPlan request{test::little_llama(), {8, 16}};
  const auto recipe = [](Plan plan) {
    plan.layout.precision = Precision::bf16;
    return file_of(export_automodel(plan), "automodel.yaml").text;
  };
  EXPECT_NE(recipe(test::make_plan(request)).find("autocast_dtype: bfloat16"), std::string::npos)
      << "one rank";
  request.data = 2;
  Plan plan = test::make_plan(request);
  plan.layout.zero = 0;
  EXPECT_NE(recipe(plan).find("strategy: ddp\n"), std::string::npos);
  EXPECT_NE(recipe(plan).find("autocast_dtype: bfloat16"), std::string::npos);
  plan.layout.zero = 2;
  EXPECT_EQ(recipe(plan).find("autocast_dtype"), std::string::npos) << "FSDP's policy casts";
}

TEST(Export, DeepSpeedsTrialIsOfPlansWithoutPipelines) {
  test::WantedPlan request{test::little_llama(), {8, 16}};
  request.data = 2;
  Plan whole = test::make_plan(request), stages = a_plan();
  whole.layout.execution.edit().framework = stages.layout.execution.edit().framework = "deepspeed";
  const auto names = [](const Plan& plan) {
    std::vector<std::string> found;
    for (const ExportedFile& file : find_export_target("deepspeed").write(plan).files)
      found.push_back(file.name);
    return found;
  };
  EXPECT_EQ(names(whole).back(), "run_deepspeed_trial.sh");
  EXPECT_EQ(names(stages).back(), "mpt_deepspeed.py") << "its layers are the user's";
  ASSERT_TRUE(trial_command(whole, "run", 50));
  EXPECT_EQ(trial_command(whole, "run", 50)->command, "bash run/run_deepspeed_trial.sh 50");
  EXPECT_FALSE(trial_command(stages, "run", 50));
}

TEST(Export, DeepSpeedsBatchIsWhatItChecks) {
  EXPECT_FALSE(deepspeed_json(plan_for_deepspeed(2, 1)).contains("train_batch_size"));
  const Json context = deepspeed_json(plan_for_deepspeed(1, 2));
  EXPECT_EQ(context["train_batch_size"], 32);
  EXPECT_EQ(context["sequence_parallel_size"], 2);
  EXPECT_EQ(context["data_parallel_size"], 4);
  EXPECT_FALSE(context.contains("gradient_clipping")) << "no part of a plan";
}

TEST(Export, DeepSpeedSumsGradientsInThePlansType) {
  Plan plan = plan_for_deepspeed(1, 1);
  EXPECT_EQ(deepspeed_json(plan)["data_types"]["grad_accum_dtype"], "fp32");
  plan.layout.execution.edit().states.gradient_bytes = 2;
  EXPECT_EQ(deepspeed_json(plan)["data_types"]["grad_accum_dtype"], "bf16");
}

}  // namespace
}  // namespace mpt::frameworks
