// SPDX-License-Identifier: Apache-2.0

// What TRL, axolotl and LLaMA-Factory do where a recipe is silent: types of weights, quantisation, losses,
// adapters, degrees.

#include "base/ranges.h"
#include "frameworks/framework.h"
#include "tests/frameworks/recipe_files.h"

namespace mpt::frameworks {
namespace {

TEST(TunerLaunch, TypesOfWeightsAreThoseOfTheProgram) {
  const auto narrow = [](const Imported& in) {
    return contains(in.execution, std::string("weight_bytes=2"));
  };
  const std::string axolotl = "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nbf16: true\n";
  const std::string fsdp = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n";
  EXPECT_TRUE(narrow(read_any("a.yaml", axolotl + fsdp))) << "no fp32 weights with FSDP2";
  EXPECT_TRUE(narrow(read_any("a.yaml", axolotl)));
  EXPECT_FALSE(narrow(read_any("a.yaml", axolotl + "adapter: lora\nlora_r: 8\n")));
  EXPECT_FALSE(narrow(read_any(
      "l.yaml", "model_name_or_path: Qwen/Qwen3-8B\nfinetuning_type: full\ncutoff_len: 2048\nbf16: true\n")))
      << "LLaMA-Factory widens them";
  const std::string launch =
      "torchrun --nproc_per_node 8 run_clm.py --model_name_or_path Qwen/Qwen3-8B --bf16 true "
      "--per_device_train_batch_size 1 --block_size 2048";
  EXPECT_TRUE(narrow(read_any("d.sh", launch + "\n")));
  EXPECT_FALSE(narrow(read_any("d.sh", launch + " --dtype float32\n")));
}

TEST(TunerLaunch, AxolotlQuantisesForQloraAlone) {
  const std::string recipe =
      "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nbf16: true\nload_in_4bit: true\nlora_r: 8\n";
  const Imported qlora = read_any("q.yaml", recipe + "adapter: qlora\nlora_target_linear: true\n");
  EXPECT_EQ(qlora.layout.training->frozen_format, FrozenFormat::nf4);
  const Imported lora = read_any("q.yaml", recipe + "adapter: lora\nlora_target_linear: true\n");
  EXPECT_EQ(lora.unknown, std::vector<std::string>{"load_in_4bit"}) << "frozen weights in fp32";
}

// axolotl 0.21.0, axolotl/loaders/model.py: device_map is cpu on local rank 0 and meta elsewhere.
TEST(TunerLaunch, AxolotlKeepsFourBitsOffTheGpuUntilTheyAreSharded) {
  const auto maps = [](const std::string& more) {
    const Imported in = read_any("m.yaml",
                                 "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nbf16: true\nlora_r: 8\n"
                                 "lora_target_linear: true\n" +
                                     more);
    return contains(in.execution, std::string("whole_at_start=0"));
  };
  const std::string fsdp = "fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n",
                    qlora = "adapter: qlora\nload_in_4bit: true\n", loads = "  cpu_ram_efficient_loading: ";
  EXPECT_TRUE(maps(qlora + fsdp + loads + "true\n"));
  EXPECT_FALSE(maps(qlora + fsdp + loads + "false\n"));
  EXPECT_FALSE(maps(qlora + fsdp));
  EXPECT_FALSE(maps("adapter: lora\n" + fsdp + loads + "true\n"));
  EXPECT_FALSE(maps(qlora));
}

// bitsandbytes quantises scales of 4-bit weights again by default in axolotl, LLaMA-Factory and AutoModel,
// and in TRL 1.16.0 and transformers where it is asked for.
TEST(TunerLaunch, ScalesOfFourBitsAreThoseOfTheProgram) {
  const auto nested = [](const Imported& in) {
    EXPECT_EQ(in.layout.training->frozen_format, FrozenFormat::nf4);
    EXPECT_EQ(in.unknown, std::vector<std::string>{});
    return !contains(in.execution, std::string("nested_scales=false"));
  };
  const std::string axolotl =
      "base_model: Qwen/Qwen3-8B\nsequence_len: 4096\nbf16: true\nload_in_4bit: true\nlora_r: 8\nadapter: "
      "qlora\nlora_target_linear: true\n";
  EXPECT_TRUE(nested(read_any("s.yaml", axolotl)));
  EXPECT_FALSE(
      nested(read_any("s.yaml", axolotl + "bnb_config_kwargs: {bnb_4bit_use_double_quant: false}\n")));
  const std::string factory =
      "model_name_or_path: Qwen/Qwen3-8B\ncutoff_len: 2048\nbf16: true\nfinetuning_type: lora\n"
      "quantization_bit: 4\n";
  EXPECT_TRUE(nested(read_any("s.yaml", factory)));
  EXPECT_FALSE(nested(read_any("s.yaml", factory + "double_quantization: false\n")));
  const std::string trl =
      "trl sft --use_peft --load_in_4bit --max_length 2048 --model_name_or_path Qwen/Qwen3-8B";
  EXPECT_FALSE(nested(read_any("s.sh", trl + "\n")));
  EXPECT_TRUE(nested(read_any("s.sh", trl + " --use_bnb_nested_quant\n")));
}

// peft/utils/constants.py names modules for some types of models only.
TEST(TunerLaunch, TargetsThatAreLeftToPeft) {
  const auto read = [](const std::string& model) {
    return read_any("p.sh", "trl sft --use_peft --max_length 2048 --model_name_or_path " + model + "\n");
  };
  using enum AdapterTarget;
  EXPECT_TRUE(read("Qwen/Qwen3-8B").layout.training->adapts(qkv));
  EXPECT_FALSE(read("Qwen/Qwen3-8B").layout.training->adapts(up));
  EXPECT_TRUE(read("microsoft/phi-2").layout.training->adapts(up));
  EXPECT_FALSE(read("microsoft/phi-2").layout.training->adapts(output));
  EXPECT_FALSE(read("Qwen/Qwen3-8B").refused);
  for (const char* model : {"Qwen/Qwen3-30B-A3B", "openai/gpt-oss-20b", "microsoft/phi-4"})
    EXPECT_TRUE(read(model).refused) << model;
}

TEST(TunerLaunch, TrlMakesNoLogits) {
  recipe_file("fsdp2.yaml", kFsdp);
  for (const char* line : {"trl sft --accelerate_config fsdp2.yaml",
                           "accelerate launch --config_file fsdp2.yaml trl/scripts/sft.py",
                           "accelerate launch --config_file fsdp2.yaml run_clm.py"}) {
    const Imported in = read_any(
        "t.sh", std::string(line) + " --model_name_or_path Qwen/Qwen3-8B --per_device_train_batch_size 1\n");
    EXPECT_EQ(contains(in.execution, std::string("loss=chunked")),
              std::string(line).find("sft") != std::string::npos)
        << line;
  }
}

// A run is priced as MPT's plan for it: by what the names trl, trl-ddp and trl-deepspeed execute.
TEST(TunerLaunch, TrlIsPricedAsTheFrameworkOfItsName) {
  recipe_file("fsdp2.yaml", kFsdp);
  recipe_file(
      "ds.json",
      R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"}})");
  const std::pair<const char*, const char*> starts[] = {
      {"trl", "accelerate launch --config_file fsdp2.yaml trl/scripts/sft.py"},
      {"trl-ddp", "trl sft --num_processes 4"},
      {"trl-deepspeed", "deepspeed trl/scripts/sft.py --deepspeed ds.json"}};
  for (const auto& [name, start] : starts) {
    const Imported in =
        read_any("named.sh", std::string(start) +
                                 " --use_peft --load_in_4bit --use_bnb_nested_quant --max_length "
                                 "2048 --model_name_or_path Qwen/Qwen3-8B\n");
    const Execution read = with_changes(load_framework(in.framework, "file"), in.execution, "file");
    const Execution named = load_framework(name, "name");
    EXPECT_EQ(&framework_named(in.framework, ""), &framework_named(name, ""));
    EXPECT_EQ(read.kernels.loss, named.kernels.loss) << name;
    EXPECT_EQ(read.kernels.loss_tile_words, named.kernels.loss_tile_words) << name;
    EXPECT_EQ(read.states, named.states) << name;
  }
}

// findings/trl_deals_parts_of_the_head_to_single_ranks.sh
TEST(TunerLaunch, TrlsHeadBesideAdaptersIsNamedOnFsdp) {
  recipe_file("fsdp2.yaml", kFsdp);
  const auto warned = [](const std::string& start, const std::string& modules) {
    const Imported in =
        read_any("head.sh", start +
                                " --use_peft --max_length 2048 --model_name_or_path Qwen/Qwen3-8B "
                                "--lora_modules_to_save " +
                                modules + "\n");
    return any_of(in.notes, [](const std::string& note) { return note.starts_with("lora_modules_to_save"); });
  };
  const std::string sharded = "accelerate launch --config_file fsdp2.yaml trl/scripts/sft.py";
  for (const char* modules : {"lm_head", "embed_tokens lm_head", "lm_head embed_tokens"})
    EXPECT_TRUE(warned(sharded, modules)) << modules;
  EXPECT_FALSE(warned(sharded, "embed_tokens"));
  EXPECT_FALSE(warned("trl sft --num_processes 4", "lm_head")) << "DDP";
}

// trl 1.16.0, trl/trainer/model_config.py: lora_dropout is 0.05 by default. MPT's recipe says 0.
TEST(TunerLaunch, TrlDropsInputsOfAdaptersUnlessTold) {
  const auto drops = [](const std::string& more) {
    return contains(
        read_any("drops.sh", "trl sft --max_length 2048 --model_name_or_path Qwen/Qwen3-8B" + more + "\n")
            .execution,
        std::string("adapter_dropout=true"));
  };
  EXPECT_TRUE(drops(" --use_peft"));
  EXPECT_TRUE(drops(" --use_peft --lora_dropout 0.05"));
  EXPECT_TRUE(drops(" --use_peft --lora_dropout 0.1"));
  EXPECT_FALSE(drops(" --use_peft --lora_dropout 0.0"));
  EXPECT_FALSE(drops(" --use_peft --lora_dropout 0"));
}

// trl 1.16.0, trl/trainer/model_config.py: dtype is float32 by default, and so are frozen weights.
TEST(TunerLaunch, TypesAndLengthsThatTrlLeavesOpen) {
  const auto unknown = [](const std::string& more) {
    return read_any("open.yaml",
                    "# sft\nmodel_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 2\n" + more)
        .unknown;
  };
  using Keys = std::vector<std::string>;
  const std::string lora = "max_length: 2048\nuse_peft: true\nlora_target_modules: all-linear\n";
  EXPECT_EQ(unknown(lora), Keys{"dtype: float32, in which frozen weights stay"});
  EXPECT_EQ(unknown(lora + "dtype: bfloat16\n"), Keys{});
  EXPECT_EQ(unknown(lora + "load_in_4bit: true\n"), Keys{});
  EXPECT_EQ(unknown(lora + "bf16: false\n"), Keys{}) << "all in fp32";
  EXPECT_EQ(unknown("max_length: 2048\n"), Keys{}) << "full training has weights in fp32";
  EXPECT_EQ(unknown("max_length: null\n").size(), 1u) << "sequences are not cut";
  EXPECT_EQ(unknown("max_length: null\npacking: true\n").size(), 1u);
}

TEST(TunerLaunch, TrlAdaptsWhatPeftNamesForAType) {
  const auto read = [](const std::string& options) {
    return read_any("trl.sh", std::string("trl sft --use_peft --max_length 2048") + kOf8B + options + "\n")
        .layout.training;
  };
  EXPECT_EQ(read("")->adapter_targets, std::vector<AdapterTarget>{AdapterTarget::qkv})
      << "queries and values";
  EXPECT_EQ(read("--lora_target_modules all-linear")->adapter_targets.size(), 4u);
}

TEST(TunerLaunch, AxolotlsDegreesAreRead) {
  const Imported in = read_any("degrees.yaml",
                               "base_model: Qwen/Qwen3-8B\ndp_shard_size: 2\ndp_replicate_size: "
                               "2\ncontext_parallel_size: 2\nfsdp_version: 2\n"
                               "fsdp_config:\n  offload_params: false\n  reshard_after_forward: "
                               "true\nsequence_len: 8192\nmicro_batch_size: 1\nbf16: true\n");
  EXPECT_EQ(in.layout.context, 2);
  EXPECT_EQ(in.layout.data, 4);
  EXPECT_EQ(in.shard_groups, 2);
}

}  // namespace
}  // namespace mpt::frameworks
