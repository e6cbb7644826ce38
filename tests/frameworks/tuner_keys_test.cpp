// SPDX-License-Identifier: Apache-2.0

// Keys of recipes of axolotl and LLaMA-Factory: read, priced, or what keeps MPT from a judgement.

#include "base/ranges.h"
#include "frameworks/registry.h"
#include "tests/frameworks/recipe_files.h"

namespace mpt::frameworks {
namespace {

Imported tuner_recipe(const std::string& text) {
  return import_transformers(recipe_file("tuner_recipe.yaml", text));
}

// frameworks/transformers/tuner_keys.json: all keys of both tools.
TEST(TunerKeys, KeysOfTunersThatChangeTheAnswerAreNotJudged) {
  using Keys = std::vector<std::string>;
  const auto axolotl = [](const std::string& more) {
    return tuner_recipe("base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n" + more);
  };
  const Imported plain =
      axolotl("output_dir: out\nlearning_rate: 0.0002\ndatasets: [{path: a}]\nload_in_8bit: false\n");
  EXPECT_EQ(plain.unknown, Keys{});
  EXPECT_EQ(plain.layout.micro_batch, 1) << "axolotl's own default";
  for (const auto& [more, key] :
       {std::pair{"rl: dpo\n", "rl"},
        {"rl: grpo\nadapter: lora\n", "rl"},
        {"expert_parallel_size: 2\nfsdp_config: {reshard_after_forward: true}\n", "expert_parallel_size"},
        {"dsv4_fp4_grouped_mode: nvfp4\n", "dsv4_fp4_grouped_mode"},
        {"adapter: lora\ndsv4_fp4_grouped_mode: fp8\n", "dsv4_fp4_grouped_mode"},
        {"nvfp4_merge_aware: true\n", "nvfp4_merge_aware"},
        {"gptq: true\n", "gptq"},
        {"gradient_checkpointing: other\n", "gradient_checkpointing"},
        {"num_labels: 1\n", "num_labels"},
        {"qat: {weight_dtype: float8_e4m3fn}\n", "qat.weight_dtype"},
        {"plugins: [axolotl.integrations.kd.KDPlugin]\n", "plugins"}})
    EXPECT_EQ(axolotl(more).unknown, Keys{key});
  const Imported noted =
      axolotl("gradient_checkpointing: true\nlora_dropout: 0.05\nsample_packing: true\nnot_a_key: 1\n");
  EXPECT_EQ(noted.unknown, Keys{}) << "dropout of layers that recompute";
  EXPECT_EQ(axolotl("load_in_8bit: 'false'\nauto_find_batch_size: 'false'\n").unknown, Keys{}) << "texts";
  for (const char* kernel : {"flash-attn2", "flash-attn3", "vllm-flash-attn3"})
    EXPECT_EQ(axolotl(std::string("attn_implementation: kernels-community/") + kernel + "\n").unknown,
              Keys{});
  EXPECT_TRUE(has_note(noted, "sample_packing: not priced"));
  EXPECT_TRUE(has_note(noted, "not_a_key: not known to axolotl 0.21.0"));
  const Imported unpriced = axolotl("tiled_mlp_num_shards: 4\n");
  EXPECT_EQ(unpriced.unknown, Keys{"tiled_mlp_num_shards"});
  EXPECT_TRUE(has_note(unpriced, "tiled_mlp_num_shards: changes memory, and is not priced"));
  const Imported cut =
      axolotl("plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n");
  EXPECT_EQ(cut.unknown, Keys{});
  EXPECT_TRUE(contains(cut.execution, std::string("loss=chunked")));
  const Imported sharded =
      axolotl("fsdp_config:\n  reshard_after_forward: false\n  activation_checkpointing: true\n");
  EXPECT_EQ(sharded.unknown, Keys{});
  EXPECT_EQ(sharded.layout.zero, 2);
  EXPECT_EQ(sharded.layout.recompute, Recompute::full);
  const auto factory = [](const std::string& more) {
    return tuner_recipe("model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 2048\n" + more);
  };
  EXPECT_EQ(factory("stage: pt\nplot_loss: true\nlogging_steps: 10\nwarmup_ratio: 0.1\n").unknown, Keys{});
  EXPECT_EQ(factory("quantization_bit: 4\ndouble_quantization: false\n").unknown, Keys{});
  for (const auto& [more, key] : {std::pair{"stage: dpo\nfinetuning_type: full\n", "stage"},
                                  {"quantization_bit: 3\n", "quantization_bit"},
                                  {"mixture_of_depths: convert\n", "mixture_of_depths"},
                                  {"use_kt: true\n", "use_kt"},
                                  {"use_asft_loss: true\n", "use_asft_loss"},
                                  {"use_muon: true\nfsdp_config: {fsdp_version: 2}\n", "use_muon"},
                                  {"cp_size: 2\n", "cp_size"}})
    EXPECT_EQ(factory(more).unknown, Keys{key});
}

TEST(TunerKeys, WhatTunersRefuseIsIllegal) {
  const auto refused = [](const std::string& recipe) { return bool(tuner_recipe(recipe).refused); };
  const std::string axolotl = "base_model: Qwen/Qwen3-8B\nsequence_len: 2048\nbf16: true\n";
  for (const char* more :
       {"fsdp: [full_shard, auto_wrap]\n", "fsdp_config: {sharding_strategy: FULL_SHARD}\n",
        "fsdp_version: 1\n", "fsdp_config: {fsdp_version: 2}\noptimizer: adamw_bnb_8bit\n",
        "activation_offloading: true\n", "optimizer: q_galore_adamw8bit\nadapter: lora\n",
        "batch_size: 32\ngradient_accumulation_steps: 2\n",
        "adapter: lora\nload_in_8bit: true\nlora_mlp_kernel: true\n"})
    EXPECT_TRUE(refused(axolotl + more)) << more;
  for (const char* more : {"fsdp_config: {fsdp_version: 2}\noptimizer: adamw_torch_8bit\n",
                           "activation_offloading: true\ngradient_checkpointing: true\n",
                           "adapter: lora\nload_in_8bit: true\n", "optimizer: adamw_bnb_8bit\n"})
    EXPECT_FALSE(refused(axolotl + more)) << more;
  EXPECT_EQ(tuner_recipe(axolotl + "batch_size: 32\n").unknown, std::vector<std::string>{"batch_size"});
  EXPECT_EQ(tuner_recipe(axolotl + "context_parallel_size: 4\n").unknown,
            std::vector<std::string>{"context_parallel_size"});
  const std::string experts =
      "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 2048\nbf16: true\nadapter: qlora\nload_in_4bit: true\n";
  EXPECT_EQ(tuner_recipe(experts).unknown.size(), 1u) << "axolotl makes them fp32";
  EXPECT_TRUE(tuner_recipe(experts + "quantize_moe_experts: true\n").unknown.empty());
  const std::string factory = "model_name_or_path: Qwen/Qwen3-8B\ncutoff_len: 2048\nbf16: true\n";
  EXPECT_TRUE(refused(factory + "finetuning_type: full\nquantization_bit: 4\n"));
  EXPECT_TRUE(refused(factory + "finetuning_type: lora\nuse_galore: true\n"));
  EXPECT_FALSE(refused(factory + "finetuning_type: full\nuse_galore: true\n"));
}

// What keys mean is priced: "sets" of frameworks/transformers/tuner_keys.json.
TEST(TunerKeys, KeysOfTunersThatArePriced) {
  const auto axolotl = [](const std::string& more) {
    Imported in = tuner_recipe("base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n" + more);
    EXPECT_EQ(in.unknown, std::vector<std::string>{}) << more;
    return in;
  };
  const auto sets = [](const Imported& in, const char* field) {
    return contains(in.execution, std::string(field));
  };
  const std::string lora = "adapter: lora\nlora_target_linear: true\n";
  EXPECT_EQ(axolotl(lora + "load_in_8bit: true\n").layout.training->frozen_format, FrozenFormat::int8);
  EXPECT_TRUE(sets(axolotl(lora + "lora_dropout: 0.05\n"), "adapter_dropout=true"));
  EXPECT_TRUE(
      sets(axolotl(lora + "load_in_8bit: true\nquantize_moe_experts: true\n"), "narrows_experts=true"));
  // It replaces recomputation beside adapters alone (axolotl 0.21.0, core/builders/base.py).
  const std::string offload = "gradient_checkpointing: true\nactivation_offloading: true\n";
  EXPECT_EQ(axolotl(lora + offload).layout.recompute, Recompute::none);
  EXPECT_EQ(axolotl(offload).layout.recompute, Recompute::full);
  EXPECT_TRUE(sets(axolotl(lora + offload), "waits_on_host=true"));
  EXPECT_EQ(axolotl(lora + "gradient_checkpointing: offload\n").layout.recompute, Recompute::none);
  EXPECT_EQ(axolotl(lora + "rl: dpo\nmicro_batch_size: 2\n").layout.micro_batch, 4)
      << "of chosen and rejected";
  EXPECT_EQ(axolotl(lora + "rl: kto\nmicro_batch_size: 2\n").layout.micro_batch, 2);
  EXPECT_TRUE(sets(axolotl("rl: dpo\nbf16: auto\n"), "weight_bytes=4")) << "a second model in bf16";
  const Imported reward =
      axolotl("reward_model: true\nmodel_type: AutoModelForSequenceClassification\nnum_labels: 1\n");
  EXPECT_TRUE(reward.model->tied_embeddings) << "no head over the vocabulary";
  EXPECT_TRUE(sets(reward, "loss=chunked"));
  EXPECT_EQ(axolotl("fp8: true\n").layout.precision, Precision::fp8);
  EXPECT_EQ(axolotl("float16: true\nbf16: false\nfp16: false\n").layout.precision, Precision::fp16);
  EXPECT_TRUE(
      sets(axolotl("qat: {weight_dtype: int4, activation_dtype: int8}\n"), "rounded_weight_bytes=19"));
  EXPECT_EQ(
      axolotl(
          "plugins: [axolotl.integrations.swanlab.SwanLabPlugin, axolotl.integrations.liger.LigerPlugin]\n")
          .notes.size(),
      axolotl("").notes.size());
  EXPECT_EQ(axolotl("use_ray: true\nray_num_workers: 4\n").ranks, 4);
}

// Where a key only lowers the memory, the price without it stands, and a note says so.
TEST(TunerKeys, SaveMemoryThatTheNoteNames) {
  const std::string lora = "adapter: lora\nlora_target_linear: true\n";
  const std::string base = "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n";
  for (const auto& [more, note] :
       {std::pair{lora + "dsv4_fp4_grouped_mode: nvfp4\n",
                  "dsv4_fp4_grouped_mode: frozen weights are priced in 16 bits"},
        {lora + "nvfp4_merge_aware: true\n", "nvfp4_merge_aware: frozen weights are priced in 16 bits"},
        {lora + "gptq: true\n", "gptq: frozen weights are priced in 16 bits"},
        {"tiled_mlp: true\n", "tiled_mlp: MLPs are priced whole"},
        {"unfrozen_parameters: ['model.layers.4[4-9]+.mlp']\n",
         "unfrozen_parameters: all weights are priced as trained"},
        {"lisa_n_layers: 4\nlisa_step_interval: 20\n", "lisa_n_layers: all layers are priced as trained"}}) {
    const Imported in = tuner_recipe(base + more);
    EXPECT_EQ(in.unknown, std::vector<std::string>{}) << more;
    EXPECT_TRUE(has_note(in, note)) << more;
  }
}

// "refused" of frameworks/transformers/tuner_keys.json names the line of the tool.
TEST(TunerKeys, WhatTheToolItselfRefuses) {
  const auto refused = [](const std::string& more) {
    const Imported in =
        tuner_recipe("base_model: Qwen/Qwen3-4B\nsequence_len: 4096\nlora_target_linear: true\n" + more);
    return in.refused ? in.refused->where + ": " + in.refused->found : "";
  };
  recipe_file("ds_z2.json", R"({"zero_optimization":{"stage":2},"bf16":{"enabled":"auto"}})");
  for (const auto& [more, key] :
       {std::pair{"load_in_8bit: true\n", "load_in_8bit"},
        {"load_in_4bit: true\n", "load_in_4bit"},
        {"adapter: qlora\nload_in_8bit: true\nload_in_4bit: true\n", "load_in_8bit"},
        {"adapter: qlora\n", "adapter"},
        {"adapter: qlora\nload_in_4bit: true\ngptq: true\n", "gptq"},
        {"optimizer: muon\ndeepspeed: ds_z2.json\n", "optimizer"},
        {"expert_parallel_size: 4\n", "expert_parallel_size"}})
    EXPECT_TRUE(refused(more).starts_with(std::string(key) + ": axolotl 0.21.0, axolotl/"))
        << more << refused(more);
  for (const char* more :
       {"adapter: lora\nload_in_8bit: true\n", "adapter: qlora\nload_in_4bit: true\n",
        "adapter: lora\ngptq: true\n", "optimizer: muon\n",
        "optimizer: muon\nfsdp_config: {reshard_after_forward: true}\n",
        "optimizer: adamw_torch_8bit\ndeepspeed: ds_z2.json\n", "expert_parallel_size: 1\n"})
    EXPECT_EQ(refused(more), "") << more;
}

// Recipes of LLaMA-Factory that mcore_adapter and Megatron-Bridge train.
TEST(TunerKeys, RecipesThatTrainByMegatronCore) {
  using Keys = std::vector<std::string>;
  const std::string base =
      "cutoff_len: 4096\nstage: sft\nbf16: true\nper_device_train_batch_size: "
      "2\ngradient_accumulation_steps: 8\n";
  const auto adapter = [&](const std::string& more) {
    return tuner_recipe("model_name_or_path: Qwen/Qwen3-30B-A3B\n" + base +
                        "pipeline_model_parallel_size: 4\n" + more);
  };
  const Imported moe = adapter(
      "expert_model_parallel_size: 2\nmoe_token_dispatcher_type: alltoall\nmoe_grouped_gemm: true\n"
      "bias_activation_fusion: true\napply_rope_fusion: true\nuse_distributed_optimizer: true\n"
      "overlap_grad_reduce: true\nrecompute_granularity: full\nfinetuning_type: full\noptim: adamw_torch\n");
  EXPECT_EQ(moe.unknown, Keys{});
  EXPECT_EQ(moe.framework, "megatron-core");
  EXPECT_EQ(moe.layout.pipeline, 4);
  EXPECT_EQ(moe.layout.expert, 2);
  EXPECT_EQ(moe.layout.zero, 1);
  EXPECT_EQ(moe.layout.micro_batch, 2);
  EXPECT_EQ(moe.accumulated, 8);
  EXPECT_EQ(moe.workload.sequence, 4096);
  EXPECT_EQ(moe.layout.recompute, Recompute::full);
  EXPECT_EQ(moe.layout.precision, Precision::bf16);
  EXPECT_FALSE(moe.layout.training->adapts()) << "its default is full training";
  EXPECT_TRUE(contains(moe.execution, std::string("vocabulary_multiple=1")));
  EXPECT_FALSE(contains(moe.execution, std::string("elementwise=eager")));
  const Imported plain = adapter("tensor_model_parallel_size: 2\nvirtual_pipeline_model_parallel_size: 2\n");
  EXPECT_EQ(plain.unknown, Keys{});
  EXPECT_EQ(plain.layout.tensor, 2);
  EXPECT_EQ(plain.layout.chunks, 2);
  EXPECT_EQ(plain.layout.zero, 0) << "no distributed optimizer by default";
  EXPECT_TRUE(contains(plain.execution, std::string("elementwise=eager"))) << "no fusion by default";
  for (const auto& [more, key] : {std::pair{"expert_model_parallel_size: 2\n", "moe_token_dispatcher_type"},
                                  {"finetuning_type: lora\n", "finetuning_type"},
                                  {"optimizer_cpu_offload: true\n", "optimizer_cpu_offload"},
                                  {"enable_liger_kernel: true\n", "enable_liger_kernel"},
                                  {"use_badam: true\n", "use_badam"},
                                  {"quantization_bit: 4\n", "quantization_bit"},
                                  {"not_a_key: 1\n", "not_a_key"},
                                  {"stage: dpo\n", "stage"}}) {
    EXPECT_EQ(adapter(more).unknown, Keys{key});
    EXPECT_FALSE(contains(adapter(more).execution, std::string("loss=chunked"))) << more;
  }
  const auto bridge = [&](const std::string& more) {
    return tuner_recipe("model_name_or_path: meta-llama/Llama-3.2-1B\n" + base +
                        "mixed_precision: bf16_mixed\ntensor_model_parallel_size: 2\n" + more);
  };
  const Imported lora = bridge("lora_rank: 16\nsequence_parallel: true\nexpert_model_parallel_size: 1\n");
  EXPECT_EQ(lora.unknown, Keys{});
  EXPECT_EQ(lora.framework, "megatron-bridge");
  EXPECT_TRUE(lora.layout.sequence_parallel);
  EXPECT_EQ(lora.layout.zero, 1) << "its default";
  EXPECT_EQ(lora.layout.training->adapter_rank, 16) << "adapters are LLaMA-Factory's default";
  EXPECT_EQ(lora.layout.training->adapter_targets.size(), 4u);
  EXPECT_FALSE(bridge("finetuning_type: full\n").layout.training->adapts());
  for (const auto& [more, key] : {std::pair{"expert_model_parallel_size: 2\n", "expert_model_parallel_size"},
                                  {"extra_config: more.json\n", "extra_config"},
                                  {"deepspeed: ds.json\n", "deepspeed"}})
    EXPECT_EQ(bridge(more).unknown, Keys{key});
}

// axolotl/loaders/model.py, _set_device_map_config: weights go to the GPU one by one, but for FSDP.
TEST(TunerKeys, AxolotlLoadsWeightsInTheTypeOfProducts) {
  const auto builds = [](const std::string& more) {
    const Imported in = tuner_recipe("base_model: meta-llama/Llama-3.1-8B\nsequence_len: 4096\n" + more);
    const auto found = find_if(
        in.execution, [](const std::string& field) { return field.starts_with("process_build_bytes="); });
    return found == in.execution.end() ? "" : found->substr(found->find('=') + 1);
  };
  const std::string fsdp = "fsdp_config:\n  reshard_after_forward: true\n";
  const std::string lora = "adapter: lora\nlora_target_linear: true\n";
  EXPECT_EQ(builds("bf16: true\n"), "0");
  EXPECT_EQ(builds("bf16: true\n" + lora), "0");
  EXPECT_EQ(builds("bf16: true\n" + fsdp), "2");
  EXPECT_EQ(builds("bf16: false\n" + fsdp), "4");
  EXPECT_EQ(builds("bf16: true\n" + fsdp + lora), "4") << "of trained weights";
  EXPECT_EQ(builds("bf16: true\n" + fsdp + "  cpu_ram_efficient_loading: true\n"), "");
}

TEST(TunerKeys, LlamaFactorysOptimizersAndLosses) {
  const auto factory = [](const std::string& more) {
    Imported in = tuner_recipe(
        "model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 2048\nfinetuning_type: full\n" + more);
    EXPECT_EQ(in.unknown, std::vector<std::string>{}) << more;
    return in;
  };
  const auto sets = [](const Imported& in, const char* field) {
    return contains(in.execution, std::string(field));
  };
  const Imported galore = factory(
      "pure_bf16: true\nuse_galore: true\ngalore_layerwise: true\ngalore_rank: 128\n"
      "galore_target: mlp,self_attn\ngalore_update_interval: 100\n");
  EXPECT_TRUE(galore.unknown.empty()) << "any modules hold less than all with AdamW's moments";
  EXPECT_EQ(galore.layout.precision, Precision::bf16);
  EXPECT_TRUE(sets(galore, "weight_bytes=2"));
  EXPECT_TRUE(sets(galore, "gradient_bytes=2"));
  EXPECT_TRUE(has_note(galore, "use_galore: moments are priced as AdamW's"));
  EXPECT_EQ(galore.ranks, 1) << "parser.py refuses more";
  EXPECT_EQ(factory("pure_bf16: true\nuse_apollo: true\napollo_rank: 64\n").ranks, 0);
  const Imported badam = factory("use_badam: true\nbadam_switch_interval: 50\n");
  EXPECT_EQ(badam.layout.precision, Precision::bf16) << "in the type that the file has";
  EXPECT_EQ(badam.ranks, 1);
  EXPECT_FALSE(sets(factory("bf16: true\nuse_eaft_loss: true\n"), "weight_bytes=2"));
  recipe_file("ds_z0.json", R"({"zero_optimization":{"stage":0},"bf16":{"enabled":"auto"}})");
  const Imported asft = factory("bf16: true\nuse_asft_loss: true\ndeepspeed: ds_z0.json\n");
  EXPECT_TRUE(sets(asft, "weight_bytes=4")) << "a second model in bf16";
  EXPECT_TRUE(sets(asft, "logit_copies=7"));
  // accelerate 1.15.0, accelerate/accelerator.py: _prepare_ao comes before _prepare_deepspeed.
  const Imported fp8 = factory("bf16: true\nfp8: true\nfp8_backend: torchao\ndeepspeed: ds_z0.json\n");
  EXPECT_EQ(fp8.layout.precision, Precision::bf16);
  EXPECT_TRUE(has_note(fp8, "fp8: products are priced in bf16"));
  EXPECT_EQ(factory("bf16: true\nfp8: true\n").layout.precision, Precision::fp8);
  EXPECT_EQ(factory("use_muon: true\n").layout.training->optimizer, OptimizerKind::muon);
}

TEST(TunerKeys, ModulesThatAreTrainedWholeBesideAdapters) {
  using Parts = std::vector<FrozenPart>;
  const auto read = [](const std::string& more) {
    return tuner_recipe(
        "base_model: meta-llama/Llama-3.2-1B\nsequence_len: 4096\nadapter: lora\nlora_r: 8\n"
        "lora_target_linear: true\n" +
        more);
  };
  const Parts layers{FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts};
  const Imported both = read("lora_modules_to_save: [embed_tokens, lm_head]\n");
  EXPECT_EQ(both.unknown, std::vector<std::string>{});
  EXPECT_EQ(both.layout.training->frozen, layers);
  EXPECT_FALSE(both.model->tied_embeddings) << "two copies";
  const Imported head = read("lora_modules_to_save: [lm_head]\n");
  EXPECT_TRUE(head.layout.training->freezes(FrozenPart::embedding));
  EXPECT_FALSE(head.layout.training->freezes(FrozenPart::head));
  EXPECT_EQ(read("lora_modules_to_save:\n").layout.training->frozen, Parts{});
  EXPECT_TRUE(read("").model->tied_embeddings);
  EXPECT_EQ(read("lora_modules_to_save: [embed_tokens, score]\n").unknown,
            std::vector<std::string>{"lora_modules_to_save"});
  const Imported factory = tuner_recipe(
      "model_name_or_path: meta-llama/Llama-3.1-8B\ncutoff_len: 2048\nfinetuning_type: lora\n"
      "additional_target: embed_tokens,lm_head\n");
  EXPECT_EQ(factory.layout.training->frozen, layers);
  EXPECT_EQ(factory.unknown, std::vector<std::string>{});
}

TEST(TunerKeys, LayersAreNamedByPatternsAndAllLinearOnesBesideNames) {
  const auto read = [](const std::string& more) {
    return tuner_recipe(
        "base_model: google/gemma-3-4b-it\nsequence_len: 500_000\nadapter: lora\nlora_r: 8\n" + more);
  };
  const Imported pattern = read(
      "lora_target_modules: "
      "'model.language_model.layers.[\\d]+.(mlp|cross_attn|self_attn).(up|down|gate|q|k|v|o)_proj'\n");
  EXPECT_EQ(pattern.layout.training->adapter_targets.size(), 4u);
  EXPECT_EQ(pattern.workload.sequence, 500000);
  const std::vector<AdapterTarget> qkv{AdapterTarget::qkv};
  EXPECT_EQ(
      read("lora_target_modules: [self_attn.q_proj, self_attn.k_proj]\n").layout.training->adapter_targets,
      qkv);
  EXPECT_EQ(read("lora_target_modules: [q_proj]\nlora_target_linear: true\n")
                .layout.training->adapter_targets.size(),
            4u);
}

TEST(TunerKeys, ExpertsThatParametersName) {
  const auto read = [](const std::string& names) {
    return tuner_recipe(
        "base_model: Qwen/Qwen3-30B-A3B\nsequence_len: 4096\nadapter: lora\nlora_target_modules: [q_proj]\n"
        "lora_target_parameters: " +
        names + "\n");
  };
  const std::vector<AdapterTarget> both{AdapterTarget::qkv, AdapterTarget::experts};
  EXPECT_EQ(read("[mlp.experts.gate_up_proj, mlp.experts.down_proj]").layout.training->adapter_targets, both);
  EXPECT_EQ(read("[mlp.gate.weight]").unknown, std::vector<std::string>{"lora_target_parameters"});
}

// The form of llamafactory/v1, which names plugins.
TEST(TunerKeys, ThoseOfLlamaFactorysNewerForm) {
  const auto read = [](const std::string& more) {
    return tuner_recipe(
        "model: Qwen/Qwen3-4B\ncutoff_len: 2048\nmicro_batch_size: 2\ntrain_dataset: a.yaml\n" + more);
  };
  const Imported in = read(
      "dist_config: {name: fsdp2, dcp_path: null, offload_params: true}\n"
      "peft_config: {name: lora, r: 16, lora_alpha: 32, target_modules: all}\n"
      "quant_config: {name: bnb, quantization_bit: 4, double_quantization: true}\n");
  EXPECT_EQ(in.unknown, std::vector<std::string>{});
  EXPECT_EQ(in.model->hub_id, "Qwen/Qwen3-4B");
  EXPECT_EQ(in.framework, "transformers-fsdp");
  EXPECT_EQ(in.layout.zero, 3);
  EXPECT_EQ(in.layout.micro_batch, 2);
  EXPECT_EQ(in.layout.recompute, Recompute::full) << "its default";
  EXPECT_EQ(in.layout.precision, Precision::bf16) << "its default";
  EXPECT_TRUE(in.layout.offload_optimizer);
  EXPECT_EQ(in.layout.training->adapter_rank, 16);
  EXPECT_EQ(in.layout.training->frozen_format, FrozenFormat::nf4);
  EXPECT_FALSE(contains(in.execution, std::string("nested_scales=false")));
  EXPECT_TRUE(contains(read("peft_config: {name: lora, r: 16}\nquant_config: {name: bnb, quantization_bit: "
                            "4, double_quantization: false}\n")
                           .execution,
                       std::string("nested_scales=false")));
  const Imported plain = read("enable_activation_checkpointing: false\nbf16: false\n");
  EXPECT_EQ(plain.layout.recompute, Recompute::none);
  EXPECT_EQ(plain.layout.precision, Precision::fp32);
  EXPECT_FALSE(plain.layout.training->adapts());
  EXPECT_EQ(plain.framework, "transformers-ddp");
  using Keys = std::vector<std::string>;
  EXPECT_EQ(read("dist_config: {name: fsdpturbo, ep_size: 4}\n").unknown,
            (Keys{"dist_config.name", "dist_config.ep_size"}));
  EXPECT_EQ(read("peft_config: {name: lora, use_dora: true}\n").unknown, Keys{"peft_config.use_dora"});
  const Imported parts =
      read("dist_config: {name: fsdp2}\nflash_attn: flash_attention_2\ncp_mode: ulysses\ncp_size: 2\n");
  EXPECT_EQ(parts.unknown, Keys{});
  EXPECT_EQ(parts.layout.context, 2);
  EXPECT_TRUE(has_note(parts, "cp_size: ranks exchange heads"));
  EXPECT_EQ(read("dist_config: {name: fsdp2}\ncp_mode: ring\n").unknown, Keys{"cp_mode"});
  const Imported muon = read("dist_config: {name: fsdp2}\noptim_config: {name: muon, momentum: 0.95}\n");
  EXPECT_EQ(muon.unknown, Keys{});
  EXPECT_TRUE(has_note(muon, "optim_config: moments are priced as AdamW's"));
  EXPECT_EQ(read("optim_config: {name: other}\n").unknown, Keys{"optim_config.name"});
  EXPECT_EQ(read("optim_config: {name: muon, rank: 8}\n").unknown, Keys{"optim_config.rank"});
}

}  // namespace
}  // namespace mpt::frameworks
