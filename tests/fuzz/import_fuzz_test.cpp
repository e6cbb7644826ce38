// SPDX-License-Identifier: Apache-2.0

// The grammars of other frameworks' files and their importers, from damaged files.

#include <gtest/gtest.h>

#include <filesystem>

#include "core/plan_request.h"
#include "frameworks/readers/expressions.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/shell_words.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "planner/recipes/recipes.h"
#include "tests/fuzz/fuzzing.h"

namespace mpt {
namespace {

constexpr const char* kScript = R"sh(#!/bin/bash
set -e
TP=${TP:-2}; PP=${PP-4}
: ${CP:=1}
NODES=$((WORLD / 8 + TP * 2))
if [ -z "$X" ]; then LAYERS=32; else LAYERS=$X; fi
for MB in 1 2; do echo $MB; done
cat > file <<EOF
  text $TP
EOF
MODEL_ARGS=(
  --num-layers $LAYERS  # of them
  --hidden-size "512" --num-attention-heads '8'
  --seq-length 2048 --max-position-embeddings 4096 --vocab-size 32000
)
MODEL_ARGS+=(--moe-layer-freq '([0]*3+[1]*29)' --num-experts 8 --disable-bias-linear)
OPTIONS=" --micro-batch-size 1 --global-batch-size 64 ${MORE:+--bf16} `date` "
torchrun --nproc_per_node $(nproc) pretrain_gpt.py "${MODEL_ARGS[@]}" $OPTIONS \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size=$PP &> log.txt
)sh";

constexpr const char* kPython = R"py("""Configurations."""
from torchtitan.trainer import Trainer
from torchtitan.models.llama3 import model_registry

SIZES = {"dim": 256, 'heads': -16, "rope": [1, 2.5e-3, (3,), None, True]}


def base() -> Trainer.Config:
    spec = model_registry("8B", attn_backend="flex")
    return Trainer.Config(
        model_spec=spec,
        training=TrainingConfig(
            num_tokens_per_microbatch_per_dp_rank=4 * 4096, max_context_length=4096,
            steps=1_000),  # a comment
        parallelism=ParallelismConfig(tensor_parallel_degree=2, pipeline_parallel_degree=2,
                                      pipeline_parallel_schedule="Interleaved1F1B", num_pp_microbatches=8),
        activation_checkpoint=SelectiveAC.Config())


def other() -> Trainer.Config:
    config = base()
    config.parallelism.data_parallel_shard_degree = 4
    for name in ("a", "b"):
        config.names.append(name)
    config.model_spec = model_registry("70B", converters=[Float8LinearConverter.Config(fqns=["layers"])])
    return config
)py";

constexpr const char* kFsdp = R"yaml(compute_environment: LOCAL_MACHINE
distributed_type: FSDP
mixed_precision: bf16
num_processes: 16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_reshard_after_forward: true
  fsdp_activation_checkpointing: false
parallelism_config:
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 8
  parallelism_config_tp_size: 1
)yaml";

constexpr const char* kAutomodel = R"yaml(model:
  pretrained_model_name_or_path: meta-llama/Llama-3.1-8B
distributed:
  strategy: fsdp2
  tp_size: 2
  pp_size: 2
  pipeline:
    pp_schedule: interleaved1f1b
    layers_per_stage: 8
    pp_microbatch_size: 1
step_scheduler:
  global_batch_size: 64
  local_batch_size: 8
dataset: {seq_len: 4096}
)yaml";

constexpr const char* kBridge = R"py(from megatron.bridge.training.config import ConfigContainer
config.model.num_layers = 32
config.model.hidden_size = 4096
config.model.num_attention_heads = 32
config.model.num_query_groups = 8
config.model.seq_length = 4096
config.model.vocab_size = 128256
config.model.pipeline_model_parallel_size = 4
config.model.virtual_pipeline_model_parallel_size = 2
config.model.recompute_granularity = "selective"
config.model.recompute_modules = ["core_attn", "mlp"]
config.train.global_batch_size = 64
config.train.micro_batch_size = 1
config.mixed_precision = "bf16_mixed"
)py";

constexpr const char* kDeepSpeed = R"json({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
 "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}},
 "bf16": {"enabled": true}, "tensor_parallel": {"autotp_size": 2}, "sequence_parallel_size": 2})json";

// As mpt-plan check does: what the files leave open follows from a cluster.
void use_request(const std::string& file, const char* framework) {
  PlanRequest asked;
  asked.cluster.name = "dgx-h100:8";
  planner::read_recipe({file, "", framework, {}}, asked);
}

TEST(ImportFuzz, ShellWords) {
  test::fuzz(kScript, 2000, [](const std::string& text) {
    WorkBudget budget("script.sh", 1 << 20);
    frameworks::shell_commands(text, "script.sh", budget);
    frameworks::shell_variables(text, "script.sh", budget);
    frameworks::argument_words(text, budget);
  });
}

TEST(ImportFuzz, Expressions) {
  test::fuzz("([0]*3+[1]*2)*4", 3000, [](const std::string& text) { frameworks::layer_pattern(text); });
  test::fuzz("(4 + 3) * 2 - 7 / (1 + 1) % 5", 3000,
             [](const std::string& text) { frameworks::arithmetic_value(text); });
}

TEST(ImportFuzz, PythonFiles) {
  const std::string file = test::path_of("recipes.py");
  test::fuzz(kPython, 1500, [&](const std::string& text) {
    test::put(file, text);
    for (const std::string& part : frameworks::torchtitan_configurations(file)) {
      try {
        frameworks::import_torchtitan_configuration(file, part);
      } catch (const UserError&) {
      }
    }
  });
}

TEST(ImportFuzz, YamlFiles) {
  const std::string file = test::path_of("recipe.yaml");
  const std::string rest = "list: [1, 2.5, \"three\", {four: 5}]\nanchors: &a {x: 1}\nagain: *a\n";
  test::fuzz(kFsdp + rest, 1500, [&](const std::string& text) {
    test::put(file, text);
    frameworks::read_yaml(file);
  });
}

TEST(ImportFuzz, WholeRecipes) {
  const struct {
    const char *name, *framework, *text;
  } kRecipes[] = {{"megatron.sh", "megatron-core", kScript}, {"titan.py", "torchtitan", kPython},
                  {"fsdp.yaml", "transformers-fsdp", kFsdp}, {"automodel.yaml", "automodel", kAutomodel},
                  {"bridge.py", "megatron-bridge", kBridge}, {"ds.json", "deepspeed", kDeepSpeed}};
  const std::filesystem::path folder = test::path_of("recipes");
  std::filesystem::create_directories(folder);
  test::put((folder / "config.json").string(),
            "{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 64, "
            "\"intermediate_size\": 128, \"num_hidden_layers\": 4, \"num_attention_heads\": 8, "
            "\"vocab_size\": 256, \"max_position_embeddings\": 8192, \"rms_norm_eps\": 1e-5, \"hidden_act\": "
            "\"silu\"}");
  for (const auto& recipe : kRecipes) {
    const std::string file = (folder / recipe.name).string();
    test::put(file, recipe.text);
    EXPECT_EQ(planner::recipes_in(file).empty(), false) << recipe.name;
    test::fuzz(recipe.text, 200, [&](const std::string& text) {
      test::put(file, text);
      planner::recipes_in(file);
      use_request(file, recipe.framework);
    });
  }
}

}  // namespace
}  // namespace mpt
