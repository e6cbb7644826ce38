// SPDX-License-Identifier: Apache-2.0

// What Megatron-LM and Megatron-Bridge have to be told, found by asking their parser and their classes.

#include <gtest/gtest.h>

#include <algorithm>

#include "base/json.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/zoo.h"
#include "profiler/hardware/catalog.h"
#include "tests/support/make_plan.h"

namespace mpt::frameworks {
namespace {

test::WantedPlan wanted(const char* model, Precision precision = Precision::bf16) {
  test::WantedPlan w{models::load_model(model), {64, 2048}};
  w.precision = precision;
  return w;
}

std::string text_of(const Exported& exported, const char* name) {
  for (const ExportedFile& file : exported.files) {
    if (file.name == name) return file.text;
  }
  return "";
}

std::string arguments(const Plan& plan) { return text_of(export_megatron_core(plan), "megatron_args.txt"); }
std::string script(const Plan& plan) { return text_of(export_megatron_core(plan), "run_megatron.sh"); }
std::string fields(const Plan& plan) { return text_of(export_megatron_bridge(plan), "mpt_layout.py"); }

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Every plan goes there and back.
void expect_back(const Plan& plan) {
  const std::string args = testing::TempDir() + "/megatron_args.txt", python = testing::TempDir() + "/mpt.py";
  write_file_atomically(args, arguments(plan));
  write_file_atomically(python, fields(plan));
  for (const Imported& back : {import_megatron_core(args), import_megatron_bridge(python)}) {
    ModelSpec model = *back.model;
    model.max_positions = plan.model.max_positions;
    EXPECT_TRUE(same_model(model, plan.model)) << to_json(model) << to_json(plan.model);
    Layout layout = back.layout;
    layout.data = plan.layout.data;
    layout.shard = plan.layout.shard;
    layout.execution = plan.layout.execution;
    if (plan.layout.expert_split() == plan.layout.tensor) layout.expert_tensor = plan.layout.expert_tensor;
    EXPECT_EQ(to_json(layout), to_json(plan.layout));
    EXPECT_EQ(back.workload, plan.workload);
  }
}

TEST(MegatronExport, EveryModelThatItHasComesBack) {
  int found = 0;
  const Framework& framework = usual_framework();
  for (const std::string& name : models::zoo_names()) {
    test::WantedPlan w = wanted(name.c_str());
    if (verdict_on(framework, w.model).verdict != VerdictKind::exported) continue;
    SCOPED_TRACE(name);
    w.workload.sequence = std::min<int64_t>(w.workload.sequence, w.model.max_positions);
    expect_back(test::make_plan(w));
    ++found;
  }
  EXPECT_GE(found, 20);
}

TEST(MegatronExport, OtherModelsAreNotWritten) {
  for (const char* name : {"bloom-176b", "falcon-7b", "gpt-neox-20b", "gemma-7b", "gemma2-27b", "opt-30b"}) {
    for (const char* framework : {"megatron-core", "megatron-bridge"})
      EXPECT_NE(verdict_on(*find_framework(framework), models::load_model(name)).verdict,
                VerdictKind::exported)
          << name;
  }
}

TEST(MegatronExport, ShardedPlansStartWithoutOneQueueOfLaunches) {
  test::WantedPlan w = wanted("llama3-8b");
  w.data = 8;
  for (const int64_t zero : {1, 2, 3}) {
    w.zero = zero;
    const Plan plan = test::make_plan(w);
    EXPECT_EQ(has(script(plan), "unset CUDA_DEVICE_MAX_CONNECTIONS"), zero > 1);
    EXPECT_EQ(has(script(plan), "export CUDA_DEVICE_MAX_CONNECTIONS="), zero < 2);
    EXPECT_EQ(has(fields(plan), "config.env_vars.pop(\"CUDA_DEVICE_MAX_CONNECTIONS\", None)"), zero > 1);
    EXPECT_EQ(has(fields(plan), "config.ddp.use_megatron_fsdp = True"), zero > 1);
    expect_back(plan);
  }
}

TEST(MegatronExport, LayersOfFurtherTokensLieBeforeTheLoss) {
  test::WantedPlan w = wanted("deepseek-v3");
  w.pipeline = 2;
  w.layers_per_stage = {30, 31};
  const Plan plan = test::make_plan(w);
  const std::string stages = "E" + std::string(30, 't') + "|" + std::string(31, 't') + "mL";
  EXPECT_TRUE(has(arguments(plan), "--pipeline-model-parallel-layout " + stages + "\n"));
  EXPECT_TRUE(has(fields(plan), "config.model.pipeline_model_parallel_layout = \"" + stages + "\"\n"));
  expect_back(plan);
}

TEST(MegatronExport, DeepSeekRoutesAndScalesAsItsAuthorsDo) {
  const std::string v3 = arguments(test::make_plan(wanted("deepseek-v3")));
  for (const char* line : {"--qk-layernorm\n", "--moe-router-score-function sigmoid\n",
                           "--moe-router-enable-expert-bias\n", "--moe-router-topk-scaling-factor 2.5\n",
                           "--moe-router-dtype fp32\n", "--moe-router-load-balancing-type seq_aux_loss\n",
                           "--rotary-scaling-factor 40\n", "--mscale 1\n", "--mscale-all-dim 1\n"})
    EXPECT_TRUE(has(v3, line)) << line;
  const std::string v2 = arguments(test::make_plan(wanted("deepseek-v2")));
  for (const char* line :
       {"--moe-router-pre-softmax\n", "--moe-router-topk-scaling-factor 16\n", "--mscale 0.707\n"})
    EXPECT_TRUE(has(v2, line)) << line;
  EXPECT_FALSE(has(v2, "sigmoid"));
  const std::string oss = arguments(test::make_plan(wanted("gpt-oss-20b")));
  for (const char* line :
       {"--position-embedding-type yarn\n", "--rotary-scaling-factor 32\n", "--quick-geglu\n",
        "--no-yarn-correction-range-round-to-int\n", "--window-size 127,0\n", "--softmax-type learnable\n"})
    EXPECT_TRUE(has(oss, line)) << line;
  EXPECT_FALSE(has(oss, "--moe-router-enable-expert-bias")) << "its router has a bias as all of its layers";
}

TEST(MegatronExport, SquaredReluComesBackAndReluIsRefused) {
  test::WantedPlan w = wanted("opt-30b");
  Plan plan = test::make_plan(w);
  EXPECT_TRUE(frameworks::supports(*frameworks::find_framework("megatron-core"), plan.model, plan.layout,
                                   plan.workload)
                  .has_value());
  plan.model.layers.change([](LayerKind& k) { k.mlp->activation = ActivationKind::squared_relu; });
  EXPECT_TRUE(has(arguments(plan), "--squared-relu\n"));
  EXPECT_TRUE(has(fields(plan), "config.model.activation_func = megatron.core.activations.squared_relu\n"));
  expect_back(plan);
}

TEST(MegatronExport, OffloadNeedsThePrecisionAwareOptimizer) {
  test::WantedPlan w = wanted("llama3-8b");
  w.data = 8;
  w.zero = 1;
  w.offload_optimizer = true;
  const Plan plan = test::make_plan(w);
  EXPECT_TRUE(has(arguments(plan), "--optimizer-cpu-offload\n--use-precision-aware-optimizer\n"));
  EXPECT_TRUE(has(fields(plan), "config.optimizer.use_precision_aware_optimizer = True\n"));
  expect_back(plan);
}

// megatron/training/arguments.py asserts an algorithm of NCCL's in this mode, and no fused loss.
TEST(MegatronExport, DeterministicKernelsNeedTheEnvironment) {
  Plan plan = test::make_plan(wanted("gpt3-175b"));
  EXPECT_FALSE(has(script(plan) + arguments(plan) + fields(plan), "eterministic"));
  plan.layout.training.edit().deterministic = true;
  EXPECT_TRUE(has(arguments(plan), "--deterministic-mode\n"));
  EXPECT_TRUE(has(script(plan), "export NCCL_ALGO=Ring\nexport CUBLAS_WORKSPACE_CONFIG=:4096:8\n"));
  EXPECT_TRUE(has(fields(plan), "config.model.deterministic_mode = True\n"));
  EXPECT_TRUE(has(fields(plan), "config.model.cross_entropy_loss_fusion = False\n"));
  EXPECT_TRUE(has(fields(plan), "config.env_vars[\"NCCL_ALGO\"] = \"Ring\"\n"));
  expect_back(plan);
}

TEST(MegatronExport, OneScaleForAMatrixIsTheTensorwiseRecipe) {
  const Plan plan = test::make_plan(wanted("llama3-8b", Precision::fp8));
  EXPECT_TRUE(has(arguments(plan), "--fp8-format hybrid\n--fp8-recipe tensorwise\n"));
  EXPECT_TRUE(has(fields(plan), "get_mixed_precision_config(\"bf16_with_fp8_current_scaling_mixed\")\n"));
  // The recipe keeps weights in fp8, and its first and last layer in bf16.
  EXPECT_TRUE(has(fields(plan), "config.mixed_precision.fp8_param = False\n"));
  EXPECT_TRUE(has(fields(plan), "config.mixed_precision.first_last_layers_bf16 = False\n"));
  for (const Precision p :
       {Precision::fp32, Precision::fp16, Precision::fp8, Precision::mxfp8, Precision::nvfp4})
    expect_back(test::make_plan(wanted("llama3-8b", p)));
}

TEST(MegatronExport, ARecipesOwnSettingsAreReplaced) {
  test::WantedPlan w = wanted("qwen3-30b-a3b");
  w.data = w.expert = 8;
  const Plan plan = test::make_plan(w);
  for (const char* line :
       {"model.pipeline_model_parallel_layout = None", "model.num_layers_in_first_pipeline_stage = None",
        "model.account_for_embedding_in_pipeline_split = False",
        "model.account_for_loss_in_pipeline_split = False", "comm_overlap = None",
        "model.moe_token_dispatcher_type = \"alltoall\"", "model.recompute_modules = [\"core_attn\"]",
        "model.tp_comm_overlap = False", "optimizer.use_precision_aware_optimizer = False",
        "optimizer.exp_avg_dtype = torch.float32", "ddp.overlap_grad_reduce = False"})
    EXPECT_TRUE(has(fields(plan), std::string("    config.") + line + "\n")) << line;
  EXPECT_TRUE(has(fields(plan), "from megatron.bridge.recipes.qwen import qwen3_30b_a3b_pretrain_config"));
  EXPECT_TRUE(
      has(fields(test::make_plan(wanted("tiny-llama"))), "recipes.gpt import vanilla_gpt_pretrain_config"));
  expect_back(plan);
}

TEST(MegatronExport, TokensAreSentOnceByWhatTheGpuHas) {
  test::WantedPlan w = wanted("mixtral-8x7b");
  w.data = w.expert = 8;
  Plan plan = test::make_plan(w);
  plan.layout.execution.edit().traffic.deduplicates_dispatch = true;
  EXPECT_TRUE(
      has(arguments(plan), "--moe-token-dispatcher-type flex\n--moe-flex-dispatcher-backend deepep\n"));
  plan.cluster.device.name = "gb200-186gb";
  EXPECT_TRUE(has(arguments(plan), "--moe-flex-dispatcher-backend hybridep\n"));
  EXPECT_TRUE(has(fields(plan), "config.model.moe_flex_dispatcher_backend = \"hybridep\"\n"));
  plan.layout.expert = 1;
  EXPECT_TRUE(has(arguments(plan), "--moe-token-dispatcher-type alltoall\n")) << "one rank exchanges nothing";
}

TEST(MegatronExport, RecomputeAndOverlapsComeBack) {
  test::WantedPlan w = wanted("llama3-8b");
  w.tensor = w.pipeline = w.data = 2;
  w.chunks = 4;
  w.schedule = "interleaved";
  w.sequence_parallel = true;
  w.zero = 1;
  w.overlap_gradient_reduce = w.overlap_parameter_gather = w.overlap_tensor = true;
  w.recompute = Recompute::full;
  w.recomputed_layers = std::vector<int64_t>(8, 1);
  expect_back(test::make_plan(w));
  w.layers_per_stage = {3, 4, 4, 4, 4, 4, 4, 5};
  w.order = RankOrder::data_outermost;
  expect_back(test::make_plan(w));
  Plan plan = test::make_plan(w);
  plan.layout.recompute = Recompute::selective;
  plan.layout.recomputed_layers.clear();
  plan.layout.selective = {.core = false, .norms = true, .mlp = true};
  EXPECT_TRUE(has(arguments(plan), "--recompute-modules layernorm mlp\n"));
  expect_back(plan);
}

TEST(MegatronExport, TheLastNodeMayHaveFewerRanks) {
  test::WantedPlan w = wanted("llama3-8b");
  w.data = 12;
  w.workload.global_batch = 48;
  Plan plan = test::make_plan(w);
  plan.cluster.devices_per_node = 8;
  plan.cluster.devices = 16;
  EXPECT_TRUE(has(script(plan), "processes=8\nif [ \"$node\" = 1 ]; then processes=4; fi\n")) << script(plan);
  EXPECT_TRUE(has(script(plan), "--nproc-per-node \"$processes\" --nnodes 2"));
  EXPECT_TRUE(
      has(export_slurm(plan).files.front().text, "if [ \"$SLURM_NODEID\" = 1 ]; then processes=4; fi"));
  EXPECT_TRUE(has(
      export_kubernetes(plan).files.front().text,
      "            - processes=8;if [ \"$JOB_COMPLETION_INDEX\" = 1 ]; then processes=4; fi; exec torchrun"));
}

// An NVL72 is one domain of NVLink, and 18 hosts.
TEST(MegatronExport, LaunchersSeeHosts) {
  test::WantedPlan w = wanted("llama3-8b");
  w.data = 64;
  w.workload.global_batch = 64;
  Plan plan = test::make_plan(w);
  plan.cluster = profiler::load_cluster("gb200-nvl72:1", std::nullopt);
  EXPECT_TRUE(has(script(plan), "--nproc-per-node 4 --nnodes 16"));
  EXPECT_TRUE(has(export_slurm(plan).files.front().text,
                  "#SBATCH --nodes=16\n#SBATCH --ntasks-per-node=1\n#SBATCH --gpus-per-node=4\n"));
}

// What Megatron-Bridge's recipes say of gradients replaces the field of ddp.
TEST(MegatronExport, BridgesGradientsAreAsWideAsThePlanCounts) {
  for (const int64_t bytes : {2, 4}) {
    Plan plan = test::make_plan(wanted("llama3-8b"));
    plan.layout.execution.edit().states.gradient_bytes = bytes;
    const std::string text = fields(plan);
    EXPECT_TRUE(has(text, "config.mixed_precision = get_mixed_precision_config(\"bf16_mixed\")\n")) << text;
    EXPECT_TRUE(has(text, std::string("config.mixed_precision.grad_reduce_in_fp32 = ") +
                              (bytes == 4 ? "True" : "False") + "\n"));
    const std::string file = testing::TempDir() + "/gradients.py";
    write_file_atomically(file, text);
    const std::vector<std::string> execution = import_megatron_bridge(file).execution;
    EXPECT_EQ(std::count(execution.begin(), execution.end(), "gradient_bytes=2"), bytes == 2 ? 1 : 0);
  }
}

struct MegatronRule {
  const char* reason;  // empty: it runs
  void (*change)(Layout&);
};

// megatron/training/arguments.py turns sums in fp32 on for bf16 alone.
TEST(MegatronExport, GradientsOfFp16AreSummedInTheTypeThatThePlanCounts) {
  const auto back = [](int64_t gradient_bytes) {
    Plan plan = test::make_plan(wanted("llama2-7b", Precision::fp16));
    plan.layout.execution.edit().states.gradient_bytes = gradient_bytes;
    const std::string args = testing::TempDir() + "/fp16_args.txt", python = testing::TempDir() + "/fp16.py";
    write_file_atomically(args, arguments(plan));
    write_file_atomically(python, fields(plan));
    const std::string narrow = "gradient_bytes=2";
    const bool of_bridge = contains(import_megatron_bridge(python).execution, narrow);
    EXPECT_EQ(contains(import_megatron_core(args).execution, narrow), of_bridge);
    return of_bridge;
  };
  EXPECT_FALSE(back(0));
  EXPECT_FALSE(back(4));
  EXPECT_TRUE(back(2));
}

TEST(MegatronExport, WhatItCannotRunIsNotPlanned) {
  const MegatronRule rules[] = {
      {"", [](Layout&) {}},
      {"overlaps parameter gathering only beside gradient reduction",
       [](Layout& l) { l.overlap_gradient_reduce = false; }},
      {"", [](Layout& l) { l.overlap_gradient_reduce = l.overlap_parameter_gather = false; }},
      {"interleaves two pipeline ranks only with overlapping transfers",
       [](Layout& l) {
         l.pipeline = l.chunks = 2;
         l.schedule = "interleaved";
         l.data = 4;
         l.shard = 4;
         l.layers_per_stage = {12, 12, 12, 12};
         l.overlap_transfer = false;
       }},
      {"overlaps the exchange with experts only where they are not recomputed",
       [](Layout& l) {
         l.expert = 8;
         l.overlap_exchange = true;
         l.recompute = Recompute::full;
       }},
      {"needs shard groups that divide the replicas of experts",
       [](Layout& l) {
         l.expert = 8;
         l.shard = 4;
       }},
      {"needs as many replicas of experts as of the rest where data is outermost",
       [](Layout& l) {
         l.pipeline = 2;
         l.data = l.shard = 4;
         l.expert = 4;
         l.layers_per_stage = {24, 24};
         l.order = RankOrder::data_outermost;
       }},
  };
  for (const char* framework : {"megatron-core", "megatron-bridge"}) {
    for (const MegatronRule& rule : rules) {
      // The parser of Megatron-LM's arguments refuses it, which Bridge does not call.
      const bool parsed = has(rule.reason, "overlaps parameter gathering") && has(framework, "bridge");
      Layout l;
      l.data = l.shard = 8;
      l.zero = 1;
      l.precision = Precision::bf16;
      l.layers_per_stage = {48};
      l.overlap_gradient_reduce = l.overlap_parameter_gather = true;
      rule.change(l);
      const auto found =
          supports(*find_framework(framework), models::load_model("qwen3-30b-a3b"), l, {64, 4096});
      const std::string reason = found ? found->reason : "";
      EXPECT_EQ(*rule.reason == '\0' || parsed, reason.empty()) << rule.reason << reason;
      EXPECT_TRUE(parsed || has(reason, rule.reason)) << reason;
    }
  }
}

}  // namespace
}  // namespace mpt::frameworks
