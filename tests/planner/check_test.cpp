// SPDX-License-Identifier: Apache-2.0

// Recipes as people have them, and what a check says of each.

#include "planner/recipes/check.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "planner/recipes/recipes.h"

namespace mpt::planner {
namespace {

namespace fs = std::filesystem;

const std::string kLlama8b =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention "
    "--num-query-groups 8 --seq-length 4096 --max-position-embeddings 4096 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights "
    "--micro-batch-size 1 --vocab-size 128256 --attention-dropout 0 --hidden-dropout 0 --bf16 "
    "--use-distributed-optimizer ";

class Check : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }

  fs::path put(const std::string& name, const std::string& text) const {
    fs::path file = folder_ / name;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file;
  }

  static PlanRequest on(const std::string& cluster) {
    PlanRequest asked;
    asked.cluster.name = cluster;
    return asked;
  }

  CheckedRecipe checked(const std::string& name, const std::string& text,
                        const std::string& cluster = "dgx-h100:1") const {
    const std::vector<Recipe> recipes = recipes_in(put(name, text));
    EXPECT_EQ(recipes.size(), 1U) << text;
    return check_recipes(recipes, on(cluster)).at(0);
  }
  CheckedRecipe megatron(const std::string& flags, const std::string& cluster = "dgx-h100:1") const {
    return checked("run.sh", "torchrun pretrain_gpt.py " + flags, cluster);
  }

  fs::path folder_;
};

TEST_F(Check, AWholeRecipeFitsAndHasItsCosts) {
  const CheckedRecipe c = megatron(kLlama8b + "--tensor-model-parallel-size 2 --global-batch-size 32");
  EXPECT_EQ(c.verdict, RecipeVerdict::fits) << c.reason;
  EXPECT_EQ(c.framework, "megatron-core");
  EXPECT_EQ(c.gpus, 8);
  EXPECT_NEAR(c.parameters, 8.03e9, 0.01e9);
  EXPECT_GT(c.step_time_s, 0.0);
  EXPECT_GT(c.peak_bytes, 0);
  EXPECT_LE(c.peak_bytes, c.limit_bytes);
}

TEST_F(Check, MoreMemoryThanThereIs) {
  const CheckedRecipe c = megatron(kLlama8b + "--micro-batch-size 16 --global-batch-size 128");
  EXPECT_EQ(c.verdict, RecipeVerdict::does_not_fit);
  EXPECT_GT(c.peak_bytes, c.limit_bytes);
  EXPECT_NE(c.reason.find("per GPU, there are"), std::string::npos) << c.reason;
}

TEST_F(Check, ARecipeWithoutALengthIsJudgedWithOneThatFits) {
  const std::string recipe =
      "recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel:\n  pretrained_model_name_or_path: "
      "mistralai/Mistral-7B-v0.1\nstep_scheduler:\n  global_batch_size: 64\n  local_batch_size: 8\n"
      "distributed:\n  strategy: fsdp2\n";
  const CheckedRecipe open = checked("open.yaml", recipe);
  EXPECT_EQ(open.verdict, RecipeVerdict::fits) << open.reason;
  ASSERT_FALSE(open.notes.empty());
  EXPECT_EQ(open.notes.back(), "2048 tokens do not fit: judged with sequences of 1024");
  const CheckedRecipe said = checked("said.yaml", recipe + "dataset:\n  seq_length: 2048\n");
  EXPECT_EQ(said.verdict, RecipeVerdict::does_not_fit);
}

TEST_F(Check, MoreGpusThanThereAre) {
  const CheckedRecipe c =
      megatron(kLlama8b + "--tensor-model-parallel-size 8 --pipeline-model-parallel-size 4");
  EXPECT_EQ(c.verdict, RecipeVerdict::does_not_fit);
  EXPECT_NE(c.reason.find("needs 32 GPUs, dgx-h100:1 has 8"), std::string::npos) << c.reason;
}

TEST_F(Check, WhatTheFrameworkRefuses) {
  const std::pair<const char*, const char*> cases[] = {
      // NVIDIA/Megatron-LM issue 1304: 30 layers ran as 28.
      {"--num-layers 30 --pipeline-model-parallel-size 4",
       "megatron-core 0.19.2, megatron/training/arguments.py:963"},
      // NVIDIA/Megatron-LM issue 468: 80 layers ran as 64.
      {"--num-layers 80 --pipeline-model-parallel-size 16 --num-layers-per-virtual-pipeline-stage 2",
       "arguments.py:938"},
      {"--num-attention-heads 12 --kv-channels 128 --num-query-groups 4 --tensor-model-parallel-size 8",
       "transformer_config.py:1324"},
      {"--global-batch-size 12", "global batch 12 does not divide"},
      {"--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 12",
       "multiple of the pipeline ranks"},
      {"--checkpoint-activations", "no longer takes"}};
  for (const auto& [flags, reason] : cases) {
    const CheckedRecipe c = megatron(kLlama8b + flags);
    EXPECT_EQ(c.verdict, RecipeVerdict::illegal) << flags;
    EXPECT_NE(c.reason.find(reason), std::string::npos) << c.reason;
  }
}

// A framework may run it, and so it is not called illegal.
TEST_F(Check, WhatPlansDoNotHaveIsNotJudged) {
  const CheckedRecipe stage =
      megatron(kLlama8b +
               "--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'Et*15|t*17||L' "
               "--global-batch-size 32");
  EXPECT_EQ(stage.verdict, RecipeVerdict::cannot_judge) << stage.reason;
  EXPECT_NE(stage.reason.find("stage 2 holds no layer"), std::string::npos) << stage.reason;
  // AutoModel keeps the mixers of Falcon-H1 whole on tensor ranks.
  for (const char* model : {"mistralai/Mixtral-8x7B-v0.1", "tiiuae/Falcon-H1-34B-Instruct"}) {
    const CheckedRecipe c =
        checked("experts.yaml",
                fmt::format("step_scheduler: {{global_batch_size: 32}}\n"
                            "model: {{pretrained_model_name_or_path: {}}}\ndistributed: {{tp_size: 4}}\n",
                            model));
    EXPECT_EQ(c.verdict, RecipeVerdict::cannot_judge) << model << ": " << c.reason;
  }
}

// AutoModel has no next-token layers for it (nemo_automodel/components/models/deepseek_v3).
TEST_F(Check, LayersThatTheFrameworkDoesNotTrainAreLeftOut) {
  const CheckedRecipe c = checked("v3.yaml",
                                  "step_scheduler: {global_batch_size: 128, local_batch_size: 8}\nmodel: "
                                  "{pretrained_model_name_or_path: deepseek-ai/DeepSeek-V3}\n"
                                  "distributed: {pp_size: 8, ep_size: 16, pipeline: {}}\n",
                                  "dgx-h100:16");
  EXPECT_NEAR(c.parameters, 671.0e9, 0.5e9) << c.reason;
}

TEST_F(Check, GpusThatNoNumberOfReplicasFills) {
  const CheckedRecipe c =
      megatron(kLlama8b + "--context-parallel-size 3 --seq-length 3072 --global-batch-size 8", "dgx-h100:1");
  EXPECT_EQ(c.verdict, RecipeVerdict::illegal);
  EXPECT_NE(c.reason.find("8 GPUs do not divide by tensor x context x pipeline = 3"), std::string::npos)
      << c.reason;
  EXPECT_EQ(megatron(kLlama8b + "--num-virtual-stages-per-pipeline-rank 2").verdict, RecipeVerdict::illegal)
      << "virtual stages without a pipeline";
}

TEST_F(Check, GroupsOfMicroBatchesAreMegatronsOwn) {
  const std::string stages =
      kLlama8b +
      "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 20 ";
  EXPECT_EQ(megatron(stages + "--microbatch-group-size-per-virtual-pipeline-stage 5").verdict,
            RecipeVerdict::fits);
  EXPECT_EQ(megatron(stages + "--microbatch-group-size-per-virtual-pipeline-stage 9").verdict,
            RecipeVerdict::illegal)
      << "a group of one is left over";
}

TEST_F(Check, FewerKeyValueHeadsThanTensorRanks) {
  const std::string two =
      kLlama8b + "--num-query-groups 2 --tensor-model-parallel-size 8 --global-batch-size 8";
  EXPECT_EQ(megatron(two).verdict, RecipeVerdict::fits) << "Megatron-LM gathers them";
}

// pytorch/torchtitan pull request 4016.
TEST_F(Check, TorchtitanDoesNotReplicateKeyValueHeads) {
  const auto recipe = [](const char* flavor, int tensor) {
    return fmt::format(
        "from torchtitan.trainer import Trainer\nfrom torchtitan.models.qwen3_5 import model_registry\n"
        "def qwen() -> Trainer.Config:\n    return Trainer.Config(\n        "
        "model_spec=model_registry(\"{}\"),\n"
        "        parallelism=ParallelismConfig(tensor_parallel_degree={}))\n",
        flavor, tensor);
  };
  for (const auto& [flavor, tensor] : {std::pair{"122B-A10B", 4}, {"397B-A17B", 8}}) {
    const CheckedRecipe c = checked("qwen.py", recipe(flavor, tensor), "dgx-b200:32");
    EXPECT_EQ(c.verdict, RecipeVerdict::illegal) << flavor;
    EXPECT_NE(c.reason.find(fmt::format("does not split 2 key-value heads over {} tensor ranks", tensor)),
              std::string::npos)
        << c.reason;
  }
  const CheckedRecipe two = checked("qwen.py", recipe("397B-A17B", 2), "dgx-b200:32");
  EXPECT_TRUE(two.verdict == RecipeVerdict::fits || two.verdict == RecipeVerdict::does_not_fit) << two.reason;
}

// The same: 61 layers on every rank, four sequences each, needed 276 GiB and more.
TEST_F(Check, TorchtitansDeepSeekRecipeNeedsMoreThanAnyGpuHas) {
  const CheckedRecipe c = checked(
      "deepseek.py",
      "from torchtitan.trainer import Trainer\nfrom torchtitan.models.deepseek_v3 import model_registry\n"
      "def deepseek_v3_671b() -> Trainer.Config:\n    return Trainer.Config(\n"
      "        model_spec=model_registry(\"671B\", attn_backend=\"flex\"),\n"
      "        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * 4096, "
      "max_context_length=4096),\n"
      "        parallelism=ParallelismConfig(pipeline_parallel_schedule=\"Interleaved1F1B\", "
      "expert_parallel_degree=2),\n        activation_checkpoint=SelectiveAC.Config())\n",
      "dgx-b200:16");
  EXPECT_EQ(c.verdict, RecipeVerdict::does_not_fit) << c.reason;
}

TEST_F(Check, NoTrainingIsNotRead) {
  const std::pair<const char*, const char*> cases[] = {
      {"pretrain_bert.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8", "bert"},
      {"tools/run_text_generation_server.py --num-layers 2 --hidden-size 64 --num-attention-heads 4",
       "training"},
      {"pretrain_gpt.py --hybrid-layer-pattern M*X- --hidden-size 64 --num-attention-heads 4 --seq-length 8",
       "--hybrid-layer-pattern"},
      {"pretrain_gpt.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 "
       "--micro-batch-size 1 --tokenizer-type "
       "SentencePieceTokenizer --tokenizer-model own.model",
       "own.model"}};
  for (const auto& [command, reason] : cases) {
    const CheckedRecipe c = checked("run.sh", std::string("torchrun ") + command);
    EXPECT_EQ(c.verdict, RecipeVerdict::not_read) << command;
    EXPECT_NE(c.reason.find(reason), std::string::npos) << c.reason;
  }
}

// Exports to AutoModel write no adapters in experts, but its own recipes have them.
TEST_F(Check, ARecipeMayTrainInAWayThatNoExportWrites) {
  const std::string recipe =
      "step_scheduler:\n  global_batch_size: 64\n  local_batch_size: 1\n"
      "model:\n  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B\n"
      "distributed:\n  dp_size: none\n  ep_size: 8\ndataset:\n  seq_length: 2048\n";
  const CheckedRecipe whole = checked("full.yaml", recipe);
  const CheckedRecipe adapted = checked("lora.yaml", recipe + "peft:\n  dim: 8\n  target_modules: ['*']\n");
  EXPECT_EQ(adapted.verdict, RecipeVerdict::fits) << adapted.reason;
  EXPECT_NE(whole.peak_bytes, adapted.peak_bytes);
}

TEST_F(Check, RecipesAreFoundByWhatStandsInThem) {
  put("a/run.sh", "torchrun pretrain_gpt.py " + kLlama8b);
  put("a/install.sh", "apt-get install git\n");
  put("b/test.yaml", "MODEL_ARGS:\n  --num-layers: 2\n");
  put("b/other.yaml", "on: push\n");
  put("c/pyproject.toml", "[project]\nname = \"x\"\n");
  put("c/titan.toml", "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 8192\n");
  put("d/ds.json", "{\"zero_optimization\": {\"stage\": 2}, \"train_batch_size\": 16}");
  put("d/config.json", "{\"model_type\": \"llama\"}");
  put("d/search.json", "{\"model\": \"llama3-8b\", \"global_batch\": 64, \"cluster\": \"dgx-h100\"}");
  put("d/layout.json",
      "{\"model\": \"llama3-8b\", \"global_batch\": 64, \"cluster\": \"dgx-h100\", \"bounds\": {\"tp\": "
      "[2]}}");
  put(".hidden/run.sh", "torchrun pretrain_gpt.py " + kLlama8b);
  std::vector<std::string> names;
  size_t others = 0;
  for (const RecipeFile& found : recipe_files({folder_, folder_ / "a" / "run.sh"})) {
    const std::vector<Recipe> recipes = recipes_in(found.file);
    others += size_t(recipes.empty());
    for (const Recipe& recipe : recipes)
      names.push_back(recipe.framework + " " + recipe.file.lexically_relative(folder_).string());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"megatron-core a/run.sh", "megatron-core b/test.yaml",
                                             "torchtitan c/titan.toml", "deepspeed d/ds.json",
                                             "request d/layout.json"}));
  EXPECT_EQ(others, 5U);
  EXPECT_THROW(recipe_files({folder_ / "nowhere"}), UserError);
}

TEST_F(Check, FilesThatALaunchLineNamesAreItsParts) {
  put("run.sh",
      "accelerate launch --config_file accelerate.yaml train.py --deepspeed ds.json --bf16 true "
      "--model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --max_length 2048\n");
  put("accelerate.yaml", "distributed_type: DEEPSPEED\nnum_processes: 8\n");
  put("ds.json", "{\"zero_optimization\": {\"stage\": 3}, \"bf16\": {\"enabled\": true}}");
  put("other/a.sh", "# see b.sh\ntorchrun pretrain_gpt.py " + kLlama8b);
  put("other/b.sh", "# see a.sh\ntorchrun pretrain_gpt.py " + kLlama8b);
  put("other/ds.json", "{\"zero_optimization\": {\"stage\": 2}, \"train_batch_size\": 16}");
  std::vector<std::string> names;
  for (const auto& of_file : check_files(recipe_files({folder_}), on("dgx-h100:1")))
    for (const CheckedRecipe& c : of_file)
      names.push_back(fs::path(c.recipe).lexically_relative(folder_).string() + " " + words_of(c.verdict));
  EXPECT_EQ(names, (std::vector<std::string>{"other/a.sh does not fit", "other/b.sh does not fit",
                                             "other/ds.json not read", "run.sh fits"}));
}

// A plan that is cut off must not pass as a file without a recipe.
TEST_F(Check, ADamagedPlanIsNotRead) {
  const CheckedRecipe c = checked("plan.json", "{\"format\": \"mpt-plan\", \"model\": ");
  EXPECT_EQ(c.verdict, RecipeVerdict::not_read);
  EXPECT_NE(c.reason.find("not valid JSON"), std::string::npos) << c.reason;
}

// Each configuration reads its file again.
TEST_F(Check, AFileOfTooManyConfigurationsIsRefused) {
  std::string text = "from torchtitan.trainer import Trainer\n";
  for (int i = 0; i < 4000; ++i)
    text += fmt::format("def f{}() -> Trainer.Config:\n    return Trainer.Config(model_spec=g(\"8B\"))\n", i);
  const fs::path file = put("config_registry.py", text);
  const CheckedRecipe c = check_files({{file, file}}, on("dgx-h100:1")).at(0).at(0);
  EXPECT_EQ(c.verdict, RecipeVerdict::not_read);
  EXPECT_EQ(c.recipe, file.string());
  EXPECT_NE(c.reason.find("steps"), std::string::npos) << c.reason;
}

TEST_F(Check, AFileThatIsNotReadIsOneOfTheVerdicts) {
  std::string text = "from torchtitan.trainer import Trainer\na0 = [1, 2]\n";
  for (int i = 1; i < 60; ++i) text += fmt::format("a{0} = [a{1}, a{1}]\n", i, i - 1);
  put("config_registry.py",
      text + "def f() -> Trainer.Config:\n    return Trainer.Config(model_spec=g(a59))\n");
  put("good.sh", "torchrun pretrain_gpt.py --global-batch-size 64 " + kLlama8b);
  const auto checked = check_files(recipe_files({folder_}), on("dgx-h100:1"));
  ASSERT_EQ(checked.size(), 2U);
  ASSERT_EQ(checked[0].size(), 1U);
  EXPECT_EQ(checked[0][0].verdict, RecipeVerdict::not_read);
  EXPECT_NE(checked[0][0].reason.find("steps"), std::string::npos) << checked[0][0].reason;
  ASSERT_EQ(checked[1].size(), 1U);
  EXPECT_NE(checked[1][0].verdict, RecipeVerdict::not_read) << checked[1][0].reason;
  EXPECT_GT(checked[1][0].parameters, 7e9);
}

TEST_F(Check, DeepSpeedTakesTheModelBesideIt) {
  put("config.json",
      "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 2048, "
      "\"intermediate_size\": 8192, \"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
      "\"num_key_value_heads\": 8, \"vocab_size\": 128256, \"max_position_embeddings\": 4096, "
      "\"rms_norm_eps\": 1e-5, \"hidden_act\": \"silu\", \"tie_word_embeddings\": true}");
  const CheckedRecipe c = checked("ds.json",
                                  "{\"zero_optimization\": {\"stage\": 2}, \"train_batch_size\": 16, "
                                  "\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": true}}");
  EXPECT_EQ(c.verdict, RecipeVerdict::fits) << c.reason;
  EXPECT_NEAR(c.parameters, 1.236e9, 0.01e9);
}

TEST_F(Check, ChangesAgainstABase) {
  CheckedRecipe before;
  before.recipe = "a.sh";
  before.verdict = RecipeVerdict::fits;
  before.step_time_s = 1.0;
  before.peak_bytes = 1000;
  CheckedRecipe slower = before, larger = before, fresh = before, same = before;
  slower.step_time_s = 1.03;
  larger.verdict = RecipeVerdict::does_not_fit;
  fresh.recipe = "b.sh";
  same.step_time_s = 1.001;
  std::vector<CheckedRecipe> now{slower, larger, fresh, same};
  compare_with_base(now, {before});
  EXPECT_EQ(now[0].change, "+3.0% step time");
  EXPECT_EQ(now[1].change, "now does not fit");
  EXPECT_EQ(now[2].change, "new");
  EXPECT_EQ(now[3].change, "");
  EXPECT_TRUE(any_refused(now));
  EXPECT_FALSE(any_unread(now));
}

}  // namespace
}  // namespace mpt::planner
