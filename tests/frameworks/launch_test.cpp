// SPDX-License-Identifier: Apache-2.0

// Who wrote a file, and how people start what it holds: launch lines, recipes of other programs, fragments,
// names that a file takes from another.

#include "base/ranges.h"
#include "models/zoo.h"
#include "tests/frameworks/recipe_files.h"

namespace mpt::frameworks {
namespace {

constexpr const char* kQwenArguments =
    "  num_layers: 48\n  hidden_size: 2048\n  num_attention_heads: 32\n  kv_channels: 128\n  "
    "group_query_attention: true\n"
    "  num_query_groups: 4\n  qk_layernorm: true\n  swiglu: true\n  disable_bias_linear: true\n  "
    "normalization: RMSNorm\n"
    "  position_embedding_type: rope\n  untie_embeddings_and_output_weights: true\n  num_experts: 128\n  "
    "moe_router_topk: 8\n"
    "  moe_ffn_hidden_size: 768\n  moe_grouped_gemm: true\n  expert_model_parallel_size: 8\n  "
    "tensor_model_parallel_size: 1\n"
    "  seq_length: 4096\n  max_position_embeddings: 4096\n  micro_batch_size: 1\n  global_batch_size: 256\n  "
    "vocab_size: 151936\n"
    "  bf16: true\n  use_distributed_optimizer: true\n";

TEST(Launch, RecipesOfMegatronLmHaveUnderscores) {
  const std::string head = "ENV_VARS:\n  CUDA_DEVICE_MAX_CONNECTIONS: '1'\nARGS:\n";
  const Imported in = read_any("moe.yaml", head + kQwenArguments);
  EXPECT_NEAR(parameters_of(in), 30.5e9, 0.1e9);
  EXPECT_EQ(in.layout.expert, 8);
  EXPECT_EQ(in.workload, (Workload{256, 4096}));
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_NE(refused([&] {
              read_any("unknown.yaml", head + kQwenArguments + "  this_key_is_unknown: 5\n");
            }).find("this-key-is-unknown"),
            std::string::npos);
}

TEST(Launch, ArgumentsOfTheTrainerMayBeJson) {
  const Imported in = read_any(
      "args.json", R"({"model_name_or_path": "meta-llama/Llama-3.1-8B", "per_device_train_batch_size": 2,
                       "gradient_accumulation_steps": 8, "bf16": true, "gradient_checkpointing": true,
                       "block_size": 4096, "fsdp": "full_shard auto_wrap"})");
  EXPECT_EQ(in.framework, "transformers-fsdp");
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.layout.micro_batch, 2);
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_EQ(in.workload.sequence, 4096);
  EXPECT_EQ(in.layout.recompute, Recompute::full);
}

TEST(Launch, JsonWithoutAKeyOfDeepSpeedsIsNotJudged) {
  for (const char* text : {"{}", R"({"model_type": "llama", "hidden_size": 4096})", R"({"version": 1})"})
    EXPECT_NE(refused([&] { read_any("no_deepspeed.json", text); }).find("no key of DeepSpeed's"),
              std::string::npos)
        << text;
  EXPECT_EQ(read_any("ds.json", R"({"zero_optimization": {"stage": 2}, "steps": 3})").layout.zero, 2);
}

TEST(Launch, FilesOfOtherProgramsAreNamed) {
  const std::pair<const char*, std::string> files[] = {
      {"FlagScale",
       "system:\n  tensor_model_parallel_size: 4\nmodel:\n  num_layers: 60\n  hidden_size: 6144\ndata:\n  x: "
       "1\n"},
      {"Primus", "modules:\n  pre_trainer:\n    overrides:\n      tensor_model_parallel_size: 1\n"},
      {"verl", "actor_rollout_ref:\n  model:\n    path: x\n"},
      {"MaxText", "ici_fsdp_parallelism: 8\n"},
      {"VeOmni", "train:\n  data_parallel_mode: fsdp2\n  ulysses_parallel_size: 1\n"}};
  for (const auto& [program, text] : files) {
    const std::string why = refused([&, &content = text] { read_any("other.yaml", content); });
    EXPECT_NE(why.find(std::string("a file of ") + program), std::string::npos) << why;
  }
  for (const char* line : {"megatron sft --model x --tensor_model_parallel_size 2\n",
                           "accelerate launch swift/cli/sft.py --model x --per_device_train_batch_size 1\n"})
    EXPECT_NE(refused([&] { read_any("swift.sh", line); }).find("a file of ms-swift"), std::string::npos)
        << line;
}

constexpr const char* kLlama =
    "--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 "
    "--group-query-attention "
    "--num-query-groups 8 --max-position-embeddings 4096 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope "
    "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 --tokenizer-type "
    "NullTokenizer";

TEST(Launch, ListsMayBeDeclared) {
  for (const char* how : {"declare -a MODEL=(", "local -a MODEL=(", "readonly -a MODEL=(", "MODEL=("}) {
    const Imported in = read_any(
        "declared.sh",
        std::string("#!/bin/bash\n#SBATCH --nodes=2\n") + how + kLlama + " --seq-length 4096)\n" +
            "TRAIN=(--micro-batch-size 1 --global-batch-size 128 --bf16 --tensor-model-parallel-size 2)\n"
            "torchrun --nproc_per_node=8 --nnodes=2 pretrain_gpt.py \"${MODEL[@]}\" \"${TRAIN[@]}\" "
            "--mock-data\n");
    EXPECT_EQ(in.layout.tensor, 2) << how;
    EXPECT_EQ(in.workload.global_batch, 128) << how;
    EXPECT_EQ(in.layout.precision, Precision::bf16) << how;
  }
}

// megatron/core/models/backends.py: the local layers keep the scores of attention, whatever the backend.
TEST(Launch, LocalLayersOfMegatronLmKeepScores) {
  const auto keeps = [](const std::string& more) {
    const Imported in = read_any(
        "local.sh", std::string("torchrun --nproc_per_node=8 pretrain_gpt.py --seq-length 4096 --bf16 ") +
                        "--micro-batch-size 1 --global-batch-size 128 --mock-data " + kLlama + more + "\n");
    return contains(in.execution, std::string("attention=unfused"));
  };
  EXPECT_TRUE(keeps(" --transformer-impl local"));
  EXPECT_TRUE(keeps(" --transformer-impl local --attention-backend flash"));
  EXPECT_FALSE(keeps(" --transformer-impl transformer_engine"));
}

TEST(Launch, AFragmentIsNotJudged) {
  const std::string model = std::string("MODEL_ARGS=(") + kLlama;
  EXPECT_EQ(read_any("model.sh", model + ")\n").unknown.size(), 2u);
  EXPECT_EQ(read_any("model.sh", model + " --seq-length 4096)\n").unknown.size(), 1u);
  EXPECT_TRUE(read_any("model.sh", model + " --seq-length 4096 --micro-batch-size 1)\n").unknown.empty());
}

TEST(Launch, NamesOfRecipesAreFollowedOverFiles) {
  const std::filesystem::path root = std::filesystem::path(testing::TempDir()) / "reexport";
  std::filesystem::create_directories(root / "own");
  std::ofstream(root / "own/__init__.py")
      << "from own.recipes import small_pretrain_config as tiny_pretrain_config\n";
  std::ofstream(root / "own/recipes.py")
      << "from megatron.bridge import AutoBridge\nfrom megatron.bridge.recipes.common import "
         "_pretrain_common\n"
         "def small_pretrain_config():\n    cfg = _pretrain_common()\n"
         "    cfg.model = AutoBridge.from_hf_pretrained(\"meta-llama/Llama-3.1-8B\").to_megatron_provider()\n"
         "    cfg.model.tensor_model_parallel_size = 2\n    cfg.dataset.seq_length = 4096\n    "
         "cfg.model.seq_length = 4096\n"
         "    return cfg\n";
  std::ofstream(root / "again.py")
      << "from own import (\n    tiny_pretrain_config as base_pretrain_config,\n)\n";
  std::ofstream(root / "fast.py") << "from again import base_pretrain_config\n"
                                     "def fast_pretrain_config():\n    cfg = base_pretrain_config()\n"
                                     "    cfg.train.micro_batch_size = 2\n    return cfg\n";
  const Imported in = import_megatron_bridge_recipe(root / "fast.py", "fast_pretrain_config");
  EXPECT_NEAR(parameters_of(in), 8.03e9, 0.01e9);
  EXPECT_EQ(in.layout.tensor, 2);
  EXPECT_EQ(in.layout.micro_batch, 2);
}

TEST(Launch, MisspeltFieldsOfBridgeAreErrors) {
  const auto read = [](const std::string& line) {
    return read_any("typo.py",
                    "from megatron.bridge.recipes.llama.llama3 import llama3_8b_pretrain_config\n"
                    "cfg = llama3_8b_pretrain_config()\ncfg.model.seq_length = "
                    "8192\ncfg.train.global_batch_size = 512\n" +
                        line);
  };
  for (const auto& [line, meant] :
       {std::pair{"cfg.model.tensor_model_paralel_size = 4\n", "tensor_model_parallel_size"},
        {"cfg.train.global_batchsize = 512\n", "global_batch_size"},
        {"cfg.model.recompute_granularty = 'full'\n", "recompute_granularity"}}) {
    const std::string why = refused<FrameworkRefusal>([&, &wrong = line] { read(wrong); });
    EXPECT_NE(why.find(std::string("did you mean \"") + meant), std::string::npos) << why;
  }
  EXPECT_EQ(read("cfg.model.tensor_model_parallel_size = 4\n").layout.precision, Precision::bf16)
      << "of its recipes";
}

TEST(Launch, ACalledRecipeThatIsNotThereIsNotJudged) {
  const std::string head =
      "from megatron.bridge.recipes.llama.llama3 import llama3_8b_pretrain_config\ncfg = "
      "llama3_8b_pretrain_config()\n";
  EXPECT_NE(refused<NotJudged>([&] {
              read_any("called.py", head + "cfg.train.global_batch_size = 8\n");
            }).find("length"),
            std::string::npos);
  EXPECT_NE(refused<NotJudged>([&] {
              read_any("called.py", head + "cfg.model.seq_length = 8192\n");
            }).find("batch"),
            std::string::npos);
}

// ---- Hugging Face's Trainer.

TEST(Launch, AccelerateStartsAScriptWithTheTrainersArguments) {
  recipe_file("fsdp2.yaml", kFsdp);
  const Imported in = read_any(
      "trl.sh",
      "#!/bin/bash\naccelerate launch --num_processes 8 --config_file fsdp2.yaml trl/scripts/sft.py \\\n"
      "  --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1 --gradient_accumulation_steps 4 "
      "\\\n"
      "  --max_length 8192 --bf16 true --gradient_checkpointing --packing\n");
  EXPECT_EQ(in.framework, "transformers-fsdp");
  EXPECT_NEAR(parameters_of(in), 8.19e9, 0.01e9);
  EXPECT_EQ(in.workload, (Workload{32, 8192}));
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.layout.recompute, Recompute::full);
  EXPECT_NE(refused<NotJudged>([] {
              read_any(
                  "gone.sh",
                  "accelerate launch --config_file gone.yaml run_clm.py --per_device_train_batch_size 1\n");
            }).find("gone.yaml is not beside"),
            std::string::npos);
}

TEST(Launch, DeepSpeedIsNamedByTheScriptsOption) {
  recipe_file("ds.json", R"({"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"})");
  for (const char* launcher : {"torchrun --nproc_per_node 8 run_clm.py", "deepspeed --num_gpus 8 train.py"}) {
    const Imported in =
        read_any("deepspeed.sh", std::string(launcher) +
                                     " --deepspeed ds.json --model_name_or_path Qwen/Qwen3-8B --bf16 True "
                                     "--per_device_train_batch_size 2 --block_size 2048\n");
    EXPECT_EQ(in.framework, "transformers-deepspeed") << launcher;
    EXPECT_EQ(in.layout.zero, 3) << launcher;
    EXPECT_EQ(in.workload, (Workload{16, 2048})) << launcher;
  }
}

TEST(Launch, TunersNameTheirRecipe) {
  recipe_file(
      "sft.yaml",
      "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 4096\nuse_peft: true\n"
      "lora_r: 8\naccelerate_config: fsdp2.yaml\n");
  recipe_file("fsdp2.yaml", kFsdp);
  const Imported trl = read_any("start.sh", "trl sft --config sft.yaml --num_processes 8\n");
  EXPECT_EQ(trl.layout.training->adapter_rank, 8);
  EXPECT_EQ(trl.workload, (Workload{16, 4096}));
  EXPECT_EQ(trl.layout.recompute, Recompute::full) << "TRL's default";
  EXPECT_EQ(trl.layout.precision, Precision::bf16);
  recipe_file(
      "lf.yaml",
      "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n"
      "per_device_train_batch_size: 1\n");
  EXPECT_EQ(read_any("lf.sh", "llamafactory-cli train lf.yaml\n").workload.sequence, 2048);
  // The owner's own start of recipes that name no FSDP.
  EXPECT_ANY_THROW(read_any("lf.sh", "torchrun src/pretrain.py lf.yaml\n")) << "another program";
  const Imported plain = read_any("lf.sh", "torchrun src/train.py lf.yaml\n");
  EXPECT_EQ(plain.framework, "transformers-ddp");
  const Imported shared =
      read_any("lf.sh", "accelerate launch --config_file fsdp2.yaml src/train.py lf.yaml\n");
  EXPECT_EQ(shared.framework, "transformers-fsdp");
  EXPECT_EQ(shared.layout.zero, 3);
  EXPECT_EQ(shared.workload.sequence, 2048);
  EXPECT_EQ(shared.ranks, 0) << "num_processes stands for the owner's number";
  EXPECT_THROW(
      read_any("dpo.sh", "trl dpo --per_device_train_batch_size 1 --model_name_or_path Qwen/Qwen3-8B\n"),
      NotJudged);
}

TEST(Launch, TunersTakeProcessesAndKeysOfTheLine) {
  recipe_file("ax.yaml",
              "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 2\nadapter: lora\n"
              "lora_target_linear: true\nbf16: true\n");
  recipe_file(
      "lf.yaml",
      "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nlora_target: all\ncutoff_len: 2048\nbf16: true\n"
      "per_device_train_batch_size: 1\n");
  const std::pair<const char*, int64_t> kLines[] = {
      {"accelerate launch --num_processes 2 -m axolotl.cli.train ax.yaml\n", 2},
      {"torchrun --nnodes 2 --nproc-per-node 4 -m axolotl.cli.train ax.yaml\n", 8},
      {"axolotl train ax.yaml --num-processes 2\n", 2},
      {"axolotl train ax.yaml --launcher torchrun -- --nproc_per_node=2\n", 2},
      {"FORCE_TORCHRUN=1 NNODES=2 NPROC_PER_NODE=4 llamafactory-cli train lf.yaml\n", 8},
      {"export NPROC_PER_NODE=2\nllamafactory-cli train lf.yaml\n", 2},
      {"env NNODES=2 NPROC_PER_NODE=2 llamafactory-cli train lf.yaml\n", 4},
      {"axolotl train ax.yaml\n", 0}};
  for (const auto& [line, ranks] : kLines) EXPECT_EQ(read_any("ranks.sh", line).ranks, ranks) << line;
  const Imported longer =
      read_any("own.sh", "axolotl train ax.yaml --micro-batch-size 8 --sequence-len 8192\n");
  EXPECT_EQ(longer.layout.micro_batch, 8);
  EXPECT_EQ(longer.workload.sequence, 8192);
  const Imported keys = read_any("own.sh", "llamafactory-cli train lf.yaml cutoff_len=4096 lora_rank=64\n");
  EXPECT_EQ(keys.workload.sequence, 4096);
  EXPECT_EQ(keys.layout.training->adapter_rank, 64);
}

TEST(Launch, ARecipeThatIsNoTableIsAnErrorOfTheFile) {
  recipe_file("list.yaml", "- a\n");
  EXPECT_THROW(read_any("list.sh", "axolotl train list.yaml --micro-batch-size 2\n"), UserError);
}

TEST(Launch, TrlsOwnConfigurationsAndDeepSpeedsNodesAreRead) {
  const std::string trl = std::string(kOf8B) + "--max_length 2048\n";
  EXPECT_EQ(read_any("own.sh", "trl sft --accelerate_config zero3" + trl).framework,
            "transformers-deepspeed");
  EXPECT_EQ(read_any("own.sh", "trl sft --accelerate_config fsdp2" + trl).layout.zero, 3);
  EXPECT_EQ(read_any("own.sh", "trl sft --accelerate_config multi_gpu" + trl).framework, "transformers-ddp");
  recipe_file("zero.json",
              R"({"zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": "auto"})");
  const std::string deepspeed = " train.py --deepspeed zero.json" + trl;
  EXPECT_EQ(read_any("own.sh", "deepspeed --num_nodes 2 --num_gpus 8" + deepspeed).layout.data, 16);
  EXPECT_EQ(read_any("own.sh", "deepspeed --include localhost:4,5" + deepspeed).layout.data, 2);
  EXPECT_EQ(read_any("own.sh", "deepspeed --include a:0,1@b:3" + deepspeed).layout.data, 3);
}

// A shell takes digits that touch a redirection for the number of a file.
TEST(Launch, RedirectionsAndArgumentsOfTheScriptAreNoValues) {
  recipe_file("zero.json", R"({"zero_optimization": {"stage": 3}})");
  const std::string line = "torchrun --nproc_per_node 4 sft.py" + std::string(kOf8B) + "--max_length 2048 ";
  const auto zero = [&](const std::string& end) {
    return read_any("end.sh", line + "--deepspeed zero.json" + end + "\n").layout.zero;
  };
  for (const char* end :
       {" 2>&1", " > log 2>&1", " 2> err", " 2>&1 | tee log", " $@", " \"$@\"", " \"${@:2}\"", " $*"})
    EXPECT_EQ(zero(end), 3) << end;
  const auto recompute = [&](const std::string& end) {
    return read_any("end.sh", line + "--gradient_checkpointing " + end + "\n").layout.recompute;
  };
  EXPECT_EQ(recompute("False > log 2>&1"), Recompute::none);
  EXPECT_EQ(recompute("True >log 2>&1"), Recompute::full);
  EXPECT_EQ(read_any("end.sh", "N=8\n" + line + "--per_device_train_batch_size $N>log\n").layout.micro_batch,
            8);
  EXPECT_EQ(read_any("end.sh", line + "--per_device_train_batch_size 8 \\\n> log 2>&1\n").layout.micro_batch,
            8);
}

TEST(Launch, DevicesThatALineSeesAreItsRanks) {
  const std::string line =
      "torchrun --nproc_per_node gpu sft.py" + std::string(kOf8B) + "--max_length 2048\n";
  const auto ranks = [](const std::string& text) { return read_any("seen.sh", text).layout.data; };
  EXPECT_EQ(ranks("CUDA_VISIBLE_DEVICES=2,3 " + line), 2);
  EXPECT_EQ(ranks("export CUDA_VISIBLE_DEVICES=0\n" + line), 1);
  EXPECT_EQ(ranks("export CUDA_VISIBLE_DEVICES=$1\n" + line), 0);
  EXPECT_EQ(ranks("torchrun --nnodes $SLURM_NNODES --nproc_per_node 8 sft.py" + std::string(kOf8B) +
                  "--max_length 2048\n"),
            0)
      << "the cluster says how many nodes there are";
}

TEST(Launch, FurtherLinesAndLoopsAreNoted) {
  const std::string line = "torchrun sft.py" + std::string(kOf8B) + "--max_length ";
  EXPECT_TRUE(has_note(read_any("two.sh", line + "2048\n" + line + "32768\n"), "the first of 2 launches"));
  EXPECT_TRUE(has_note(read_any("loop.sh", "for N in 2048 32768; do\n" + line + "$N\ndone\n"),
                       "sets N in more than"));
  EXPECT_FALSE(has_note(read_any("one.sh", line + "2048\n"), "launches"));
}

TEST(Launch, FilesBesideTheScriptByItsFolder) {
  recipe_file("zero.json", R"({"zero_optimization": {"stage": 2}})");
  const std::string line = "torchrun sft.py" + std::string(kOf8B) + "--max_length 2048 --deepspeed ";
  for (const char* folder : {"$(dirname \"$0\")", "$HERE", "${HERE}"})
    EXPECT_EQ(read_any("in.sh", line + "\"" + folder + "/zero.json\"\n").layout.zero, 2) << folder;
}

// transformers/training_args.py: fsdp_config is a file, a mapping, or JSON in a text.
TEST(Launch, FsdpOfTheTrainerAsAMapping) {
  const std::string recipe =
      "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 4096\n"
      "bf16: true\ngradient_checkpointing: false\nfsdp: full_shard auto_wrap\n";
  EXPECT_EQ(read_any("fsdp.yaml", recipe).layout.recompute, Recompute::none);
  EXPECT_EQ(
      read_any("fsdp.yaml", recipe + "fsdp_config:\n  activation_checkpointing: true\n").layout.recompute,
      Recompute::full);
  EXPECT_EQ(read_any("fsdp.yaml", recipe + "fsdp_config: '{\"activation_checkpointing\": true}'\n")
                .layout.recompute,
            Recompute::full);
}

// torch 2.15.0, torch/amp/grad_scaler.py: "Attempting to unscale FP16 gradients."
TEST(Launch, Fp16DoesNotTrainWeightsInFp16) {
  const auto refused = [](const std::string& types) {
    return read_any("fp16.sh",
                    "torchrun sft.py --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 2 "
                    "--max_length 2048 " +
                        types + "\n")
        .refused.has_value();
  };
  EXPECT_TRUE(refused("--bf16 false --fp16 --dtype float16"));
  EXPECT_FALSE(refused("--bf16 false --fp16 --dtype float32"));
  EXPECT_FALSE(refused("--bf16 --dtype float16"));
}

// peft 0.21.2, tuners/lora/model.py: a type without modules of its own is refused unless parameters are
// named.
TEST(Launch, AdaptersOnParametersOfExpertsAlone) {
  const std::string recipe =
      "model_name_or_path: Qwen/Qwen3-30B-A3B\nper_device_train_batch_size: 2\nmax_length: 4096\nuse_peft: "
      "true\n";
  EXPECT_TRUE(read_any("lora.yaml", recipe).refused);
  const Imported in = read_any(
      "lora.yaml", recipe + "lora_target_parameters: [mlp.experts.gate_up_proj, mlp.experts.down_proj]\n");
  EXPECT_FALSE(in.refused);
  EXPECT_EQ(in.layout.training->adapter_targets, std::vector<AdapterTarget>{AdapterTarget::experts});
}

TEST(Launch, RecipesOfTrlAreReadAloneAndThoseOfMsSwiftNamed) {
  recipe_file("fsdp2.yaml", kFsdp);
  const std::string recipe =
      "# sft\nmodel_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\nmax_length: 4096\n";
  const Imported alone = read_any("alone.yaml", recipe);
  EXPECT_EQ(alone.framework, "transformers-ddp");
  EXPECT_EQ(alone.workload.sequence, 4096);
  EXPECT_TRUE(has_note(alone, "no accelerate_config"));
  EXPECT_EQ(read_any("alone.yaml", recipe + "accelerate_config: fsdp2.yaml\n").layout.zero, 3);
  EXPECT_EQ(read_any("dpo.yaml", recipe + "beta: 0.1\n").unknown, std::vector<std::string>{"beta"})
      << "of DPO";
  EXPECT_NE(refused([] {
              read_any("swift.yaml", "model: Qwen/Qwen2.5-7B-Instruct\ntuner_type: lora\nmax_length: 2048\n");
            }).find("a file of ms-swift"),
            std::string::npos);
}

// A script's own words for what is read: FastChat, LLaVA, PEFT's examples and open-instruct have these.
TEST(Launch, ScriptsNameTheirOwnArguments) {
  const auto read = [](const std::string& options, const std::string& script = "train.py") {
    return read_any("own.sh", "torchrun --nproc_per_node 4 " + script + kOf8B + options + "\n");
  };
  for (const char* word : {"max_length", "max_seq_length", "model_max_length", "block_size"})
    EXPECT_EQ(read(std::string("--") + word + " 4096").workload, (Workload{8, 4096})) << word;
  EXPECT_NE(refused<NotJudged>([&] { read(""); }).find("--model_max_length"), std::string::npos)
      << "no length, and a default that nobody knows";
  EXPECT_EQ(read("", "run_clm.py").workload.sequence, 1024) << "the example's own default";
  const std::string length = "--max_length 2048 ", targets = "--lora_target_modules q_proj v_proj ";
  EXPECT_FALSE(read(length).layout.training->adapts());
  EXPECT_FALSE(read(length + targets + "--use_peft_lora False --lora_r 8").layout.training->adapts());
  const Training lora = read(length + targets + "--use_lora --lora_r 4 --bits 4").layout.training;
  EXPECT_EQ(lora.adapter_rank, 4);
  EXPECT_EQ(lora.adapter_targets, std::vector<AdapterTarget>{AdapterTarget::qkv});
  EXPECT_EQ(lora.frozen_format, FrozenFormat::nf4);
  EXPECT_EQ(read(length + targets + "--lora_rank 2").layout.training->adapter_rank, 2) << "it always adapts";
  const Training plain = read(length + targets + "--lora_r 8 --q_lora False").layout.training;
  EXPECT_EQ(plain.adapter_rank, 8) << "a script that always adapts, as FastChat's";
  EXPECT_EQ(plain.frozen_format, FrozenFormat::bf16);
  EXPECT_NE(refused<NotJudged>([&] { read(length + "--use_lora --lora_r 8"); }).find("--lora_target_modules"),
            std::string::npos);
  EXPECT_EQ(read(length + "--gradient_checkpointing 0").layout.recompute, Recompute::none);
  EXPECT_EQ(read(length + "--gradient_checkpointing 1").layout.recompute, Recompute::full);
  EXPECT_EQ(read(length + "--vision_tower openai/clip").unknown, std::vector<std::string>{"vision_tower"});
  EXPECT_EQ(read(length + "--use_cpu True").unknown, std::vector<std::string>{"use_cpu"});
  EXPECT_TRUE(
      has_note(read(length + "--lazy_preprocess True --data_path x.json"),
               "lazy_preprocess, data_path: not known to transformers 5.24.0 or transformers 4.57.1"));
}

TEST(Launch, ProgramsOfOtherKindsAreNotJudged) {
  for (const char* program :
       {"python open_instruct/grpo_fast.py", "accelerate launch dpo_tune_cache.py",
        "torchrun -m trl.scripts.reward", "accelerate launch --num_processes 2 run_kto.py"})
    EXPECT_NE(refused<NotJudged>([&] {
                read_any("kind.sh", program + std::string(kOf8B) + "--max_length 2048\n");
              }).find("training by"),
              std::string::npos)
        << program;
}

TEST(Launch, OptionsComeBeforeAcceleratesFile) {
  recipe_file("fsdp2.yaml", kFsdp);
  recipe_file("zero.json", R"({"zero_optimization": {"stage": 1}, "bf16": {"enabled": "auto"},
    "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "train_batch_size": "auto"})");
  const auto read = [](const std::string& options) {
    return read_any("before.sh",
                    "accelerate launch " + options + " train.py" + kOf8B + "--max_length 2048\n");
  };
  EXPECT_EQ(read("--config_file fsdp2.yaml --num_processes 4").layout.data, 4);
  EXPECT_EQ(read("--config_file fsdp2.yaml --fsdp_reshard_after_forward false").layout.zero, 2);
  EXPECT_TRUE(read("--config_file fsdp2.yaml --fsdp_offload_params true").layout.offload_optimizer);
  // One rank has nobody to share with, and FSDP offloads all the same.
  EXPECT_EQ(read("--config_file fsdp2.yaml --num_processes 1 --fsdp_offload_params true").layout.zero, 3);
  EXPECT_EQ(read("--config_file fsdp2.yaml --num_processes 1").layout.zero, 0);
  const Imported stage =
      read("--num_processes 4 --use_deepspeed --zero_stage 3 --offload_optimizer_device cpu");
  EXPECT_EQ(stage.framework, "transformers-deepspeed");
  EXPECT_EQ(stage.layout.zero, 3);
  EXPECT_TRUE(stage.layout.offload_optimizer);
  EXPECT_EQ(read("--num_processes 4 --use_deepspeed --deepspeed_config_file zero.json").layout.zero, 1);
  // A file beside the script is found where the script has a relative path, too.
  const std::filesystem::path here = std::filesystem::current_path();
  const std::filesystem::path folder = std::filesystem::absolute(testing::TempDir()).parent_path();
  std::filesystem::current_path(folder.parent_path());
  for (const char* file : {"zero.json", "./zero.json"}) {
    recipe_file("relative.sh", std::string("deepspeed --num_gpus 4 train.py --deepspeed ") + file + kOf8B +
                                   " --max_length 2048\n");
    const std::string script = (folder.filename() / "relative.sh").string();
    EXPECT_EQ(find_importer("", script).importer.read(script).layout.zero, 1) << file;
  }
  std::filesystem::current_path(here);
  EXPECT_EQ(read("--config_file fsdp2.yaml --use_deepspeed").framework, "transformers-deepspeed");
  const Imported nested =
      read_any("mason.sh",
               "python mason.py --gpus 8 -- accelerate launch --mixed_precision bf16 "
               "--num_processes 4 --use_deepspeed --zero_stage 2 --deepspeed_multinode_launcher "
               "standard train.py --max_seq_length 4096" +
                   std::string(kOf8B) + "\n");
  EXPECT_EQ(nested.layout.zero, 2);
  EXPECT_EQ(nested.workload, (Workload{8, 4096}));
}

// accelerate/utils/dataclasses.py:1909; findings/accelerate_fsdp2_gathers_whole_models_without_a_policy.sh
TEST(Launch, FsdpOverWholeModelsIsNotJudged) {
  const auto unknown = [](const std::string& options) {
    return read_any("whole.sh", "accelerate launch --use_fsdp --num_processes 4 " + options +
                                    " train.py --max_length 2048" + std::string(kOf8B) + "\n")
        .unknown;
  };
  for (const char* options :
       {"", "--fsdp_auto_wrap_policy NO_WRAP", "--fsdp_auto_wrap_policy SIZE_BASED_WRAP"}) {
    ASSERT_EQ(unknown(options).size(), 1u) << options;
    EXPECT_NE(unknown(options).front().find("TRANSFORMER_BASED_WRAP"), std::string::npos);
  }
  EXPECT_TRUE(unknown("--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP").empty());
}

// Lines as MPT's own exports start the tuners, and files that hold such lines for a gate.
TEST(Launch, TunersAreStartedByOtherLaunchersToo) {
  recipe_file("fsdp2.yaml", kFsdp);
  recipe_file("lf.yaml",
              "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\ncutoff_len: 2048\n"
              "per_device_train_batch_size: 1\nbf16: true\n");
  recipe_file("ax.yaml", "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n");
  const std::string sharded =
      "accelerate launch --config_file fsdp2.yaml --main_process_port \"$port\" "
      "\"$(python3 -c 'import llamafactory.launcher as m; print(m.__file__)')\" lf.yaml \"$@\"\n";
  const std::string replicated =
      "exec torchrun --nnodes \"$nodes\" --nproc-per-node 8 -m axolotl.cli.train ax.yaml \"$@\"\n";
  EXPECT_EQ(read_any("run_lf.sh", sharded).layout.zero, 3);
  EXPECT_EQ(read_any("run_lf.sh", sharded).workload.sequence, 2048);
  EXPECT_EQ(read_any("run_ax.sh", replicated).framework, "transformers-ddp");
  EXPECT_EQ(read_any("run_ax.sh", replicated).layout.micro_batch, 2);
  for (const std::string& text :
       {sharded, replicated, std::string("axolotl train ax.yaml\n"),
        "trl sft --config c.yaml\n" + std::string(), "deepspeed train.py" + std::string(kOf8B)})
    EXPECT_NE(find_recipe_importer("start.sh", text), nullptr) << text;
  EXPECT_EQ(find_recipe_importer("other.sh", "axolotl preprocess ax.yaml\n"), nullptr);
}

// transformers/training_args.py, _process_fsdp_args
TEST(Launch, FsdpOfTheTrainersArguments) {
  recipe_file("fsdp.json",
              R"({"cpu_offload": true, "reshard_after_forward": false, "activation_checkpointing": true})");
  const auto read = [](const std::string& options) {
    return read_any("fsdp.sh", std::string("torchrun --nproc_per_node 4 train.py --max_length 2048") + kOf8B +
                                   options + "\n");
  };
  const Imported full =
      read("--fsdp \"full_shard auto_wrap\" --fsdp_transformer_layer_cls_to_wrap Qwen3DecoderLayer");
  EXPECT_EQ(full.framework, "transformers-fsdp");
  EXPECT_EQ(full.layout.zero, 3);
  EXPECT_FALSE(full.layout.offload_optimizer);
  const Imported less = read("--fsdp \"shard_grad_op offload\"");
  EXPECT_EQ(less.layout.zero, 2);
  EXPECT_TRUE(less.layout.offload_optimizer);
  const Imported file = read("--fsdp True --fsdp_config fsdp.json");
  EXPECT_EQ(file.layout.zero, 2);
  EXPECT_TRUE(file.layout.offload_optimizer);
  EXPECT_EQ(file.layout.recompute, Recompute::full);
  EXPECT_EQ(read("--fsdp False").framework, "transformers-ddp");
  EXPECT_EQ(read("--fsdp \"hybrid_shard auto_wrap\"").unknown.size(), 1u) << "FSDP 1 alone has it";
  EXPECT_EQ(read("--fsdp no_shard").unknown.size(), 1u);
}

// The same words in recipes, as a text, as texts or beside a section.
TEST(Launch, FsdpsWordsInRecipes) {
  const auto factory = [](const std::string& more) {
    return read_any(
        "words.yaml",
        "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n" + more);
  };
  EXPECT_EQ(factory("fsdp: full_shard auto_wrap\n").layout.zero, 3);
  EXPECT_EQ(factory("fsdp: shard_grad_op auto_wrap\n").layout.zero, 2);
  EXPECT_FALSE(factory("fsdp: full_shard auto_wrap\n").layout.offload_optimizer);
  EXPECT_TRUE(factory("fsdp: full_shard auto_wrap offload\n").layout.offload_optimizer);
  EXPECT_EQ(factory("fsdp: hybrid_shard auto_wrap\n").unknown.size(), 1u);
  const std::string axolotl = "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nbf16: true\n";
  const Imported list =
      read_any("words.yaml", axolotl +
                                 "fsdp: [shard_grad_op, auto_wrap, offload]\nfsdp_config:\n"
                                 "  fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n");
  EXPECT_EQ(list.layout.zero, 2);
  EXPECT_TRUE(list.layout.offload_optimizer);
  const Imported own = read_any("words.yaml", axolotl +
                                                  "fsdp: [full_shard, auto_wrap]\nfsdp_config:\n"
                                                  "  offload_params: true\n  reshard_after_forward: false\n");
  EXPECT_EQ(own.layout.zero, 2) << "the section comes first";
  EXPECT_TRUE(own.layout.offload_optimizer);
}

TEST(Launch, DeepSpeedsFileMayStandInTheRecipe) {
  const auto zero = [](const std::string& recipe, const std::string& file) {
    const Imported in = read_any("inline.yaml", recipe + "bf16: true\ndeepspeed: " + file + "\n");
    EXPECT_EQ(in.unknown, std::vector<std::string>{}) << file;
    EXPECT_EQ(in.framework, "transformers-deepspeed") << file;
    return std::pair(in.layout.zero, in.layout.offload_optimizer);
  };
  EXPECT_EQ(zero("base_model: Qwen/Qwen3-8B\nsequence_len: 4096\n",
                 "{bf16: {enabled: auto}, zero_optimization: {stage: 3, offload_optimizer: {device: cpu}}}"),
            std::pair(int64_t{3}, true));
  EXPECT_EQ(zero("model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: 2048\n",
                 "{bf16: {enabled: auto}, zero_optimization: {stage: 2}}"),
            std::pair(int64_t{2}, false));
}

}  // namespace
}  // namespace mpt::frameworks
