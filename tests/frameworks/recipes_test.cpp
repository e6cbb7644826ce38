// SPDX-License-Identifier: Apache-2.0

// Recipes of several frameworks, as their own trees and their users have them.

#include "frameworks/megatron-core/import.h"
#include "frameworks/registry.h"
#include "models/zoo.h"
#include "tests/frameworks/recipe_files.h"

namespace mpt::frameworks {
namespace {

Imported megatron_recipe(const std::string& command) {
  return import_megatron_core(recipe_file("recipe.sh", command));
}

const std::string kQwen =
    "torchrun pretrain_gpt.py --num-layers 28 --hidden-size 1024 --ffn-hidden-size 3072 "
    "--num-attention-heads 16 "
    "--group-query-attention --num-query-groups 8 --kv-channels 128 --swiglu --normalization RMSNorm "
    "--position-embedding-type rope --disable-bias-linear --seq-length 4096 --max-position-embeddings 40960 "
    "--qk-layernorm --bf16 ";

TEST(Recipes, VocabulariesOfKnownTokenizers) {
  const Imported in =
      megatron_recipe(kQwen + "--tokenizer-type HuggingFaceTokenizer --tokenizer-model Qwen/Qwen3-0.6B");
  EXPECT_EQ(in.model->vocab, 151936);
  EXPECT_NEAR(parameters_of(in), 0.596e9, 0.001e9);
  EXPECT_TRUE(has_note(in, "151936 tokens are taken, as Qwen/Qwen3-0.6B has"));
  EXPECT_EQ(in.open_vocabulary, "");
  EXPECT_EQ(vocabulary_of_tokenizer("/models/Llama-3.1-8B-Instruct/"), 128256);
  EXPECT_EQ(vocabulary_of_tokenizer("unsloth/DeepSeek-R1-Distill-Qwen-7B"), 152064);
  EXPECT_EQ(vocabulary_of_tokenizer("deepseek-ai/DeepSeek-R1"), 129280);
  EXPECT_EQ(vocabulary_of_tokenizer("own/tokenizer"), std::nullopt);
  EXPECT_EQ(vocabulary_of_tokenizer(""), std::nullopt);
}

TEST(Recipes, VocabulariesThatNobodyKnowsAreAskedFor) {
  EXPECT_EQ(megatron_recipe(kQwen + "--tokenizer-type SentencePieceTokenizer --tokenizer-model $OWN")
                .open_vocabulary,
            "$OWN");
  EXPECT_EQ(megatron_recipe(kQwen + "--tokenizer-type TikTokenizer").open_vocabulary, "TikTokenizer");
  EXPECT_EQ(megatron_recipe(kQwen + "--tokenizer-type TikTokenizer --vocab-size 1000").open_vocabulary, "");
  EXPECT_EQ(megatron_recipe(kQwen + "--tokenizer-type GPT2BPETokenizer --vocab-file v.json").open_vocabulary,
            "");
}

TEST(Recipes, AFileOfFlagsIsCalledAfterItsModel) {
  const std::string flags = kQwen.substr(24) + "--tokenizer-type HuggingFaceTokenizer";
  EXPECT_EQ(import_megatron_core(recipe_file("Qwen3-0.6B.sh", "MODEL_ARGS=\"" + flags + "\"")).model->vocab,
            151936);
  EXPECT_EQ(import_megatron_core(recipe_file("own.sh", "MODEL_ARGS=\"" + flags + "\"")).open_vocabulary,
            "HuggingFaceTokenizer");
}

TEST(Recipes, ABranchThatIsOpenDoesNotHideWhatIsKnown) {
  const std::string script = "if [ -z $CKPT ]; then\n  MODEL=Qwen/Qwen3-0.6B\nelse\n  MODEL=$CKPT\nfi\n" +
                             kQwen + "--tokenizer-type HuggingFaceTokenizer --tokenizer-model $MODEL";
  const Imported in = megatron_recipe(script);
  EXPECT_EQ(in.model->vocab, 151936);
  EXPECT_TRUE(has_note(in, "sets MODEL in more than one way"));
}

TEST(Recipes, ProgramsThatTrainNothing) {
  for (const char* program : {"tools/run_text_generation_server.py", "examples/generate_samples_gpt.py",
                              "tasks/main.py", "tools/checkpoint/convert.py", "gpt_static_inference.py"}) {
    const std::string why =
        refused([&] { megatron_recipe(std::string("torchrun ") + program + kQwen.substr(24)); });
    EXPECT_NE(why.find(program), std::string::npos) << why;
  }
  const std::string yaml = "MODE: inference\nMODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 8\n";
  EXPECT_NE(refused([&] { import_megatron_core(recipe_file("model_config.yaml", yaml)); }).find("inference"),
            std::string::npos);
}

TEST(Recipes, AFunctionalTestsFolderSaysItsModel) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "test_cases/bert/one";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model_config.yaml") << "MODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 64\n  "
                                                 "--num-attention-heads: 4\n  --seq-length: 8\n";
  EXPECT_NE(refused([&] { import_megatron_core(folder / "model_config.yaml"); }).find("pretrain_bert.py"),
            std::string::npos);
  EXPECT_NE(refused([] { megatron_recipe(kQwen + "--bert-no-binary-head"); }).find("--bert-no-binary-head"),
            std::string::npos);
}

TEST(Recipes, OneOfSeveralRunsOfAFunctionalTest) {
  const Imported in = import_megatron_core(recipe_file(
      "model_config.yaml",
      "MODEL_ARGS:\n  --num-layers: 4\n  --hidden-size: 64\n  --num-attention-heads: 4\n  --seq-length: 8\n"
      "  --vocab-size: 256\n  --tensor-model-parallel-size: 1\n  --deterministic-mode: true\n"
      "MODEL_ARGS_2:\n  --tensor-model-parallel-size: 2\n"));
  EXPECT_EQ(in.layout.tensor, 1);
  EXPECT_TRUE(has_note(in, "MODEL_ARGS_2"));
  EXPECT_TRUE(in.layout.training->deterministic);
  EXPECT_TRUE(std::find(in.execution.begin(), in.execution.end(), "dropout=true") != in.execution.end());
}

TEST(Recipes, WhatMegatronNoLongerTakes) {
  for (const char* flag : {"--batch-size 8", "--model-parallel-size 2", "--checkpoint-activations"}) {
    const std::string why =
        refused<FrameworkRefusal>([&] { megatron_recipe(kQwen + "--vocab-size 100 " + flag); });
    EXPECT_NE(why.find("no longer takes"), std::string::npos) << flag << why;
  }
}

TEST(Recipes, BatchesGradientsAndKernelsOfMegatron) {
  const auto has = [](const Imported& in, const char* change) {
    return std::find(in.execution.begin(), in.execution.end(), change) != in.execution.end();
  };
  const std::string base = kQwen + "--vocab-size 1000 ";
  EXPECT_EQ(
      megatron_recipe(base + "--step-batch-size-schedule '0:384 200B:768 400B:1152'").workload.global_batch,
      1152);
  EXPECT_NE(refused([&] {
              megatron_recipe(base + "--step-batch-size-schedule 0:many");
            }).find("step-batch-size-schedule"),
            std::string::npos);
  std::string half = base;
  half.replace(half.find("--bf16"), 6, "--fp16");
  EXPECT_TRUE(has(megatron_recipe(half), "gradient_bytes=2"));
  EXPECT_FALSE(has(megatron_recipe(half + "--accumulate-allreduce-grads-in-fp32"), "gradient_bytes=2"));
  EXPECT_FALSE(has(megatron_recipe(base), "gradient_bytes=2"));
  EXPECT_TRUE(has(megatron_recipe(base + "--attention-backend unfused"), "attention=unfused"));
  EXPECT_TRUE(has(megatron_recipe(base + "--no-pad-vocab-size"), "vocabulary_multiple=1"));
  EXPECT_TRUE(has_note(megatron_recipe(base + "--optimizer lion"), "optimizer lion: priced as AdamW"));
  EXPECT_EQ(megatron_recipe(base + "--optimizer muon").layout.training->optimizer, OptimizerKind::muon);
  EXPECT_TRUE(has_note(megatron_recipe(base + "--cuda-graph-modules attn"), "--cuda-graph-modules"));
}

constexpr const char* kTitan = R"py(from torchtitan.models.llama3 import model_registry


def first() -> Trainer.Config:
    return Trainer.Config(
        model_spec=model_registry("3B"),
        training=TrainingConfig(num_tokens_per_microbatch_per_dp_rank=4 * 4096, max_context_length=4096),
        parallelism=ParallelismConfig(
            data_parallel_shard_degree=4, pipeline_parallel_degree=2, num_pp_microbatches=16,
            pipeline_parallel_schedule="Interleaved1F1B"))


def helper(config):
    return config.model


def second() -> Trainer.Config:
    config = first()
    config.model_spec = model_registry("8B")
    config.training.num_tokens_per_train_step = 128 * 4096
    return config


def adapters() -> Trainer.Config:
    config = first()
    config.model_spec = model_registry("8B", converters=[LoRAConverter.Config(rank=8)])
    return config
)py";

TEST(Recipes, EachConfigurationOfATorchtitanFile) {
  const auto file = recipe_file("config_registry.py", kTitan);
  EXPECT_EQ(torchtitan_configurations(file), (std::vector<std::string>{"first", "second", "adapters"}));
  const Imported first = import_torchtitan_configuration(file, "first");
  EXPECT_NEAR(parameters_of(first), 3.21e9, 0.01e9);
  EXPECT_EQ(first.layout.micro_batch, 4);
  EXPECT_EQ(first.workload.sequence, 4096);
  EXPECT_EQ(first.workload.global_batch, 4 * 16 * 4);
  const Imported second = import_torchtitan_configuration(file, "second");
  EXPECT_NEAR(parameters_of(second), 8.03e9, 0.01e9);
  EXPECT_EQ(second.workload.sequence, 4096) << "a member that is set later leaves the others";
  EXPECT_EQ(second.workload.global_batch, 128);
  EXPECT_NE(refused([&] { import_torchtitan_configuration(file, "adapters"); }).find("LoRA"),
            std::string::npos);
  EXPECT_NE(refused([&] { import_torchtitan_configuration(file, "secnd"); }).find("did you mean \"second\""),
            std::string::npos);
}

// A configuration may change one of another file, whose own names say which model it is.
TEST(Recipes, AConfigurationOfAnotherTorchtitanFileHasItsModel) {
  recipe_file("base_plan.py", kTitan);
  for (const char* import : {"from base_plan import second", "from base_plan import second as of_base"}) {
    const std::string name = std::string(import).substr(std::string(import).rfind(' ') + 1);
    const auto file = recipe_file(
        "trial.py", std::string(import) + "\n\n\ndef trial() -> Trainer.Config:\n    config = " + name +
                        "()\n    config.metrics.log_freq = 1\n    return config\n");
    const Imported in = import_torchtitan_configuration(file, "trial");
    EXPECT_NEAR(parameters_of(in), 8.03e9, 0.01e9) << import;
    EXPECT_EQ(in.layout.pipeline, 2) << import;
  }
}

// One that another file makes is told, and not passed over.
TEST(Recipes, AConfigurationThatIsNotUnderstoodIsRefusedByName) {
  const std::string text =
      "from torchtitan.models.llama3 import model_registry\n"
      "from torchtitan.models.llama3.config_registry import llama3_8b\n"
      "def made_elsewhere() -> GraphTrainer.Config:\n    return to_graph_trainer_config(llama3_8b())\n"
      "def whole() -> Trainer.Config:\n    return Trainer.Config(\n"
      "        model_spec=model_registry(\"8B\"), dataloader=Loader(dataset=DATASETS[\"c4\"]),\n"
      "        compile=[c for c in all], training=TrainingConfig(max_context_length=8192))\n";
  const auto file = recipe_file("config_registry.py", text);
  EXPECT_EQ(torchtitan_configurations(file), (std::vector<std::string>{"made_elsewhere", "whole"}));
  EXPECT_NE(refused([&] {
              import_torchtitan_configuration(file, "made_elsewhere");
            }).find("to_graph_trainer_config()"),
            std::string::npos);
  const Imported whole = import_torchtitan_configuration(file, "whole");
  EXPECT_EQ(whole.workload.sequence, 8192);
  EXPECT_TRUE(has_note(whole, "compile=... was not understood"));
  EXPECT_FALSE(has_note(whole, "dataset"));
}

TEST(Recipes, ParametersOfTorchtitansModels) {
  const std::tuple<const char*, const char*, double> models[] = {
      {"llama3", "1B", 1.236e9},      {"llama3", "8B", 8.03e9},           {"qwen3", "0.6B", 0.596e9},
      {"qwen3", "1.7B", 1.72e9},      {"qwen3", "14B", 14.77e9},          {"qwen3", "32B", 32.76e9},
      {"qwen3", "4B", 4.02e9},        {"qwen3", "30B-A3B", 30.5e9},       {"deepseek_v3", "16B", 15.7e9},
      {"deepseek_v3", "671B", 671e9}, {"qwen3_5", "0.8B", 1.0e9},         {"qwen3_5", "4B", 4.84e9},
      {"qwen3_5", "35B-A3B", 34.7e9}, {"kimi_k2_7", "Kimi-K2.5", 1.03e12}};
  for (const auto& [family, flavor, count] : models) {
    const std::string text = fmt::format(
        "from torchtitan.models.{} import model_registry\ndef f() -> Trainer.Config:\n"
        "    return Trainer.Config(model_spec=model_registry(\"{}\"))\n",
        family, flavor);
    EXPECT_NEAR(parameters_of(import_torchtitan(recipe_file("one.py", text))), count, 0.01 * count) << flavor;
  }
}

Imported fsdp_recipe(const std::string& text) {
  return import_transformers(recipe_file("recipe.yaml", text));
}

// LLaMA-Factory and axolotl train by the Trainer, with DeepSpeed, FSDP or neither.
TEST(Recipes, ThoseOfLlamaFactory) {
  recipe_file("ds_z3_config.json",
              R"({"zero_optimization":{"stage":3,"overlap_comm":true},"bf16":{"enabled":"auto"},
      "fp16":{"enabled":"auto"},"train_micro_batch_size_per_gpu":"auto","gradient_accumulation_steps":"auto"})");
  const std::string base =
      "model_name_or_path: Qwen/Qwen2.5-32B-Instruct\nstage: sft\ncutoff_len: 2048\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n";
  const Imported full = fsdp_recipe(base + "finetuning_type: full\ndeepspeed: ds_z3_config.json\n");
  EXPECT_EQ(full.framework, "transformers-deepspeed");
  EXPECT_EQ(full.layout.zero, 3);
  EXPECT_EQ(full.layout.precision, Precision::bf16);
  EXPECT_EQ(full.layout.recompute, Recompute::full);
  EXPECT_EQ(full.workload.sequence, 2048);
  EXPECT_EQ(full.accumulated, 2);
  EXPECT_EQ(full.workload.global_batch, 0);
  EXPECT_FALSE(full.layout.training->adapts());
  EXPECT_EQ(full.model->hub_id, "Qwen/Qwen2.5-32B-Instruct");
  EXPECT_FALSE(has_note(full, "left open"));
  const Imported lora = fsdp_recipe(base +
                                    "quantization_bit: 4\nlora_rank: 16\nlora_target: q_proj,v_proj\n"
                                    "disable_gradient_checkpointing: true\n");
  EXPECT_EQ(lora.layout.training->adapter_rank, 16);
  EXPECT_EQ(lora.layout.training->frozen_format, FrozenFormat::nf4);
  EXPECT_EQ(lora.layout.training->adapter_targets, std::vector<AdapterTarget>{AdapterTarget::qkv});
  EXPECT_EQ(lora.layout.recompute, Recompute::none);
  EXPECT_EQ(lora.layout.zero, 0);
  EXPECT_TRUE(has_note(lora, "each GPU has all weights"));
  EXPECT_NE(refused([&] { fsdp_recipe(base + "finetuning_type: freeze\n"); }).find("\"freeze\""),
            std::string::npos);
  EXPECT_NE(refused([&] { fsdp_recipe(base + "deepspeed: other.json\n"); }).find("other.json"),
            std::string::npos);
}

TEST(Recipes, ThoseOfAxolotl) {
  const Imported in = fsdp_recipe(
      "base_model: meta-llama/Llama-3.1-70B\nload_in_4bit: true\nadapter: qlora\nlora_r: 64\n"
      "lora_target_linear: true\nsequence_len: 4096\nmicro_batch_size: 1\ngradient_accumulation_steps: 16\n"
      "optimizer: paged_adamw_8bit\ngradient_checkpointing: true\n"
      "fsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: true\n");
  EXPECT_EQ(in.framework, "transformers-fsdp");
  EXPECT_EQ(in.model->name, "llama3-70b");
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_EQ(in.layout.recompute, Recompute::full);
  EXPECT_EQ(in.layout.training->adapter_rank, 64);
  EXPECT_EQ(in.layout.training->adapter_targets.size(), 4u) << "all linear layers";
  EXPECT_EQ(in.layout.training->frozen_format, FrozenFormat::nf4);
  EXPECT_EQ(in.layout.training->optimizer, OptimizerKind::adamw8);
  EXPECT_EQ(in.accumulated, 16);
  EXPECT_EQ(in.workload.global_batch, 0) << "it follows from the GPUs";
  EXPECT_EQ(in.unknown, std::vector<std::string>{});
  EXPECT_TRUE(in.layout.offload_optimizer)
      << "with the weights (frameworks/transformers-fsdp/framework.json)";
}

// bitsandbytes packs 4-bit weights in bytes by default, which FSDP2 leaves whole on each GPU. axolotl and
// NeMo AutoModel pack them in bf16, unless a recipe says otherwise.
TEST(Recipes, FourBitWeightsThatFsdpLeavesWholeAreRefused) {
  const std::string base =
      "base_model: meta-llama/Llama-3.1-70B\nload_in_4bit: true\nadapter: qlora\nlora_target_linear: true\n"
      "sequence_len: 4096\nmicro_batch_size: 1\n";
  const std::string fsdp = "fsdp:\n  - full_shard\n",
                    stored = "bnb_config_kwargs:\n  bnb_4bit_quant_storage: ";
  const std::string why = refused([&] { fsdp_recipe(base + fsdp + stored + "uint8\n"); });
  EXPECT_NE(why.find("bnb_config_kwargs.bnb_4bit_quant_storage"), std::string::npos) << why;
  EXPECT_NE(why.find("set it to bfloat16"), std::string::npos) << why;
  EXPECT_EQ(refused([&] { fsdp_recipe(base + fsdp + stored + "torch.bfloat16\n"); }), "accepted");
  EXPECT_EQ(refused([&] { fsdp_recipe(base + fsdp + stored + "float32\n"); }), "accepted");
  EXPECT_EQ(refused([&] { fsdp_recipe(base + stored + "uint8\n"); }), "accepted") << "nothing is shared out";
}

// What the Trainer decides is not fp32, and what a plan has no place for is told.
TEST(Recipes, DeepSpeedsAutoAndItsOtherGroups) {
  const auto read = [](const std::string& more) {
    return import_deepspeed(recipe_file("ds.json", R"({"zero_optimization":{"stage":3)" + more + "}"));
  };
  const Imported in =
      read(R"(,"zero_hpz_partition_size":8,"zero_quantized_weights":true},"bf16":{"enabled":"auto"})");
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_TRUE(has_note(in, "bf16 is taken"));
  EXPECT_EQ(in.unknown, std::vector<std::string>{"zero_optimization.zero_hpz_partition_size"});
  EXPECT_TRUE(has_note(in, "zero_quantized_weights"));
  EXPECT_EQ(read("}").layout.precision, Precision::fp32);
  EXPECT_EQ(read(R"(},"fp16":{"enabled":true})").layout.precision, Precision::fp16);
  EXPECT_EQ(read(R"(},"gradient_accumulation_steps":4)").accumulated, 4);
  EXPECT_TRUE(has_note(read(R"(,"stage3_allgather_sequential":true})"), "stage3_allgather_sequential"));
}

// deepspeed 0.19.8, runtime/engine.py, _do_optimizer_sanity_check: ZeRO takes the optimizers that it was
// tested with.
TEST(Recipes, DeepSpeedsShardsTakeTestedOptimizers) {
  const auto read = [](const std::string& optimizer, const std::string& more) {
    return import_deepspeed(
        recipe_file("ds.json", R"({"train_micro_batch_size_per_gpu":1,"optimizer":{"type":")" + optimizer +
                                   R"("},"zero_optimization":{"stage":)" + more + "}"));
  };
  for (const char* tested : {"Adam", "adamw", "Adagrad", "Lion", "Muon"})
    EXPECT_FALSE(read(tested, "2}").refused) << tested;
  for (const char* untested : {"Lamb", "SGD", "MuAdamW"}) {
    EXPECT_TRUE(read(untested, "1}").refused) << untested;
    EXPECT_FALSE(read(untested, "0}").refused) << untested;
    EXPECT_FALSE(read(untested, R"(3},"zero_allow_untested_optimizer":true)").refused) << untested;
  }
}

// findings/deepspeed_clips_what_muon_has_made_of_gradients.sh: it clips at 1.0 unless the file says
// otherwise.
TEST(Recipes, DeepSpeedClipsMuonsUpdates) {
  const auto shrinks = [](const std::string& optimizer, const std::string& more) {
    return has_note(import_deepspeed(recipe_file(
                        "ds.json", R"({"train_micro_batch_size_per_gpu":1,"optimizer":{"type":")" +
                                       optimizer + R"("},"zero_optimization":{"stage":)" + more + "}")),
                    "shrinks Muon's updates");
  };
  EXPECT_TRUE(shrinks("Muon", "2}"));
  EXPECT_TRUE(shrinks("Muon", R"(3},"gradient_clipping":"auto")"));
  EXPECT_FALSE(shrinks("Muon", R"(1},"gradient_clipping":0.0)"));
  EXPECT_FALSE(shrinks("Muon", "0}"));
  EXPECT_FALSE(shrinks("AdamW", "2}"));
}

// Weights that stay whole, buffers, and states that stay on the GPU (deepspeed 0.19.8,
// runtime/zero/config.py).
TEST(Recipes, SizesThatChangeDeepSpeedsMemoryAreNotJudged) {
  const auto unknown = [](const std::string& more) {
    return import_deepspeed(recipe_file("ds.json", R"({"zero_optimization":{"stage":3)" + more + "}}"))
        .unknown;
  };
  using Keys = std::vector<std::string>;
  for (const char* usual :
       {R"(,"stage3_param_persistence_threshold":1e5)", R"(,"stage3_param_persistence_threshold":"auto")",
        R"(,"reduce_bucket_size":5e8,"stage3_prefetch_bucket_size":5e7)", R"(,"zero_hpz_partition_size":1)",
        R"(,"offload_optimizer":{"device":"cpu","ratio":1.0})"})
    EXPECT_EQ(unknown(usual), Keys{}) << usual;
  for (const auto& [more, key] :
       {std::pair{R"(,"stage3_param_persistence_threshold":1e9)", "stage3_param_persistence_threshold"},
        {R"(,"reduce_bucket_size":1e10)", "reduce_bucket_size"},
        {R"(,"stage3_prefetch_bucket_size":4e9)", "stage3_prefetch_bucket_size"},
        {R"(,"offload_optimizer":{"device":"cpu","ratio":0.3})", "offload_optimizer.ratio"}})
    EXPECT_EQ(unknown(more), Keys{std::string("zero_optimization.") + key});
}

TEST(Recipes, OptimizersByTheMomentsThatTheyKeep) {
  const auto read = [](const std::string& name) {
    return import_transformers(recipe_file(
        "optimizer.yaml", "base_model: Qwen/Qwen3-4B\nsequence_len: 4096\noptimizer: " + name + "\n"));
  };
  for (const auto& [name, kind] : {std::pair{"paged_adamw_8bit", OptimizerKind::adamw8},
                                   {"ao_adamw_fp8", OptimizerKind::adamw8},
                                   {"adamw_torch_4bit", OptimizerKind::adamw8},
                                   {"muon_8bit", OptimizerKind::muon},
                                   {"schedule_free_sgd", OptimizerKind::adamw},
                                   {"flash_sgd", OptimizerKind::sgd},
                                   {"adafactor", OptimizerKind::adafactor}}) {
    EXPECT_EQ(read(name).layout.training->optimizer, kind) << name;
    EXPECT_TRUE(read(name).unknown.empty()) << name;
  }
  EXPECT_TRUE(has_note(read("lomo"), "optimizer lomo: priced as AdamW"));
  EXPECT_TRUE(has_note(read("adamw_torch_4bit"), "above its 4"));
  for (const char* name : {"ademamix", "paged_ademamix_8bit", "grokadamw"})
    EXPECT_EQ(read(name).unknown.size(), 1u) << name << " keeps three moments";
}

TEST(Recipes, FilesOfOtherProgramsAreNamed) {
  const auto told = [](const std::string& name, const std::string& text) {
    return refused([&] {
      const std::filesystem::path file = recipe_file(name, text);
      find_importer("", file.string()).importer.read(file);
    });
  };
  EXPECT_NE(
      told("s.sh", "megatron sft --model Qwen/Qwen3-32B --tensor_model_parallel_size 8").find("ms-swift"),
      std::string::npos);
  EXPECT_NE(told("neox.yml", "{\"pipe_parallel_size\": 2, \"num-layers\": 12}").find("GPT-NeoX"),
            std::string::npos);
  const std::string mds =
      told("m.sh", kQwen.substr(0, kQwen.find("--swiglu")) + "--zero-stage 3 --normalization rmsnorm");
  EXPECT_NE(mds.find("Megatron-DeepSpeed"), std::string::npos);
  EXPECT_NE(mds.find("mpt-plan estimate"), std::string::npos);
}

TEST(Recipes, AutoModelsTeacherAndProductsOfTransformerEngineAreTold) {
  const Imported in = import_automodel(recipe_file(
      "kd.yaml",
      "step_scheduler: {global_batch_size: 32}\nmodel:\n  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B\n"
      "  backend: {experts: te, te_fp8: {recipe: mxfp8}}\nteacher_model: {pretrained_model_name_or_path: "
      "Qwen/Qwen3-32B}\n"));
  EXPECT_TRUE(has_note(in, "teacher_model"));
  EXPECT_TRUE(has_note(in, "te_fp8"));
}

const std::string kAutoModel =
    "step_scheduler: {global_batch_size: 32}\nmodel:\n  pretrained_model_name_or_path: Qwen/Qwen3-30B-A3B\n";

TEST(Recipes, KeysThatAutoModelDoesNotHaveAreNamed) {
  const Imported in = import_automodel(recipe_file(
      "keys.yaml",
      kAutoModel + "  backend: {attn: te, atn: te}\nqat: {enabled: true}\nfp9: {enabled: true}\n"));
  EXPECT_EQ(in.unknown, (std::vector<std::string>{"model.backend.atn", "fp9"}));
  EXPECT_TRUE(has_note(in, "not taken over: model.backend.attn, qat"));
}

// nemo_automodel/components/distributed/pipelining/functional.py, calculate_virtual_stages()
TEST(Recipes, StagesOfAutoModelAreRoundedAsItRoundsThem) {
  const auto chunks = [](const std::string& more) {
    return import_automodel(
               recipe_file("stages.yaml", kAutoModel +
                                              "distributed:\n  pp_size: 4\n  pipeline: {pp_schedule: "
                                              "interleaved1f1b" +
                                              more + "}\n"))
        .layout.chunks;
  };
  EXPECT_EQ(chunks(""), 2);
  EXPECT_EQ(chunks(", layers_per_stage: 4"), 3) << "48 layers";
  EXPECT_EQ(chunks(", layers_per_stage: 5, round_virtual_stages_to_pp_multiple: down"), 2) << "10 stages";
  EXPECT_EQ(chunks(", layers_per_stage: 5, round_virtual_stages_to_pp_multiple: up"), 3);
  EXPECT_NE(refused<FrameworkRefusal>([&] { chunks(", layers_per_stage: 5"); }).find("10 stages of 5 layers"),
            std::string::npos);
}

TEST(Recipes, StatesOfAutoModelsFusedAdam) {
  const auto bytes = [](const std::string& more) {
    return import_automodel(
               recipe_file("adam.yaml", kAutoModel +
                                            "optimizer:\n  _target_: "
                                            "transformer_engine.pytorch.optimizers.fused_adam.FusedAdam\n" +
                                            more))
        .execution;
  };
  EXPECT_EQ(bytes("").back(), "optimizer_bytes=8");
  EXPECT_EQ(bytes("  master_weights: true\n").back(), "optimizer_bytes=12");
  EXPECT_EQ(bytes("  master_weights: true\n  store_param_remainders: true\n  exp_avg_dtype: torch.bfloat16\n")
                .back(),
            "optimizer_bytes=8");
}

}  // namespace
}  // namespace mpt::frameworks
