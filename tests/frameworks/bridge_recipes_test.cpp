// SPDX-License-Identifier: Apache-2.0

// Recipes of NeMo and Megatron-Bridge, which are functions.

#include "base/ranges.h"
#include "frameworks/registry.h"
#include "models/zoo.h"
#include "tests/frameworks/recipe_files.h"

namespace mpt::frameworks {
namespace {

TEST(Recipes, NemoAndBridgeRecipesNameTheirModel) {
  const Imported nemo = import_megatron_bridge(recipe_file(
      "nemo.py",
      "from nemo.collections import llm\nrecipe = llm.llama3_70b.pretrain_recipe(num_nodes=8)\n"
      "recipe.trainer.strategy.tensor_model_parallel_size = 8\n"
      "recipe.trainer.strategy.pipeline_model_parallel_size = 4\nrecipe.data.global_batch_size = 512\n"
      "recipe.data.seq_length = 8192\n"));
  EXPECT_NEAR(parameters_of(nemo), 70.55e9, 0.1e9);
  EXPECT_EQ(nemo.layout.tensor, 8);
  EXPECT_EQ(nemo.layout.pipeline, 4);
  EXPECT_EQ(nemo.workload.global_batch, 512);
  EXPECT_EQ(nemo.workload.sequence, 8192);
  EXPECT_TRUE(has_note(nemo, "the recipe of llama3-70b"));
  const Imported bridge = import_megatron_bridge(
      recipe_file("bridge.py",
                  "from megatron.bridge.recipes.qwen import qwen3_30b_a3b_pretrain_config\n"
                  "config = qwen3_30b_a3b_pretrain_config()\nconfig.model.expert_model_parallel_size = 8\n"
                  "config.model.seq_length = 4096\nconfig.train.micro_batch_size = 1\n"));
  EXPECT_NEAR(parameters_of(bridge), 30.5e9, 0.1e9);
  EXPECT_EQ(bridge.layout.expert, 8);
  EXPECT_NE(
      refused([] {
        import_megatron_bridge(recipe_file("none.py", "import megatron.bridge\nconfig = own_config()\n"));
      }).find("no recipe of a model that is known"),
      std::string::npos);
}

// Bridge's common recipes, and its models from checkpoints, set what Megatron-LM's defaults do not.
TEST(Recipes, RecipesThatAreCalledHaveWhatAllOfBridgesHave) {
  const auto called = [](const std::string& name, const std::string& more = "") {
    return import_megatron_bridge(recipe_file(
        "called.py", "from megatron.bridge.recipes.llama import " + name + "\ncfg = " + name +
                         "()\ncfg.model.seq_length = 8192\ncfg.train.micro_batch_size = 1\n" + more));
  };
  const auto drops = [](const Imported& in) { return contains(in.execution, std::string("dropout=true")); };
  for (const char* name : {"llama3_8b_pretrain_config", "llama3_8b_pretrain_8gpu_h100_bf16_config"}) {
    const Imported in = called(name);
    EXPECT_EQ(in.layout.zero, 1) << name;
    EXPECT_TRUE(in.layout.overlap_gradient_reduce && in.layout.overlap_parameter_gather) << name;
    EXPECT_EQ(in.layout.precision, Precision::bf16) << name;
    EXPECT_FALSE(drops(in)) << name;
  }
  EXPECT_FALSE(called("llama3_8b_sft_config").layout.overlap_gradient_reduce);
  // training/config.py, 1955 to 1967: one of both sections is enough.
  const std::string off = "cfg.optimizer.use_distributed_optimizer = False\n";
  EXPECT_EQ(called("llama3_8b_pretrain_config", off).layout.zero, 1) << "ddp has it on";
  EXPECT_EQ(called("llama3_8b_sft_config", "cfg.ddp.use_distributed_optimizer = False\n").layout.zero, 1);
  EXPECT_EQ(
      called("llama3_8b_pretrain_config", off + "cfg.ddp.use_distributed_optimizer = False\n").layout.zero,
      0);
  EXPECT_TRUE(drops(called("llama3_8b_pretrain_config", "cfg.model.hidden_dropout = 0.1\n")));
}

TEST(Recipes, LinesOfACalledRecipeAreNoSizesAndAreNoted) {
  const auto called = [](const std::string& more) {
    return import_megatron_bridge(
        recipe_file("lines.py",
                    "from megatron.bridge.recipes.llama import llama3_8b_pretrain_config\ncfg = "
                    "llama3_8b_pretrain_config()\n"
                    "cfg.model.seq_length = 8192\ncfg.train.micro_batch_size = 1\n" +
                        more));
  };
  EXPECT_NEAR(parameters_of(called("cfg.model.recompute_num_layers = 1\n")), 8.03e9, 0.01e9);
  EXPECT_NEAR(parameters_of(called("cfg.model.mtp_num_layers = None\n")), 8.03e9, 0.01e9);
}

TEST(Recipes, PluginsOfNemoAreThePrecision) {
  const auto read = [](const std::string& more) {
    return import_megatron_bridge(
        recipe_file("plugins.py",
                    "from nemo.collections import llm\nrecipe = llm.llama3_70b.pretrain_recipe(num_nodes=8)\n"
                    "recipe.trainer.strategy.tensor_model_parallel_size = 8\n"
                    "recipe.data.seq_length = 8192\nrecipe.data.micro_batch_size = "
                    "1\nrecipe.data.global_batch_size = 512\n" +
                        more));
  };
  EXPECT_EQ(read("").layout.precision, Precision::bf16);
  EXPECT_EQ(read("recipe.trainer.plugins = bf16_with_fp8_current_scaling_mixed()\n").layout.precision,
            Precision::fp8);
  EXPECT_TRUE(has_note(read("recipe.trainer.plugins = bf16_with_fp8_mixed()\n"), "taken as bf16_mixed"))
      << "not Bridge's";
}

// As src/megatron/bridge/recipes/llama/h100/llama3.py: the second function changes what the first returns.
constexpr const char* kBridgeRecipes = R"py(from megatron.bridge import AutoBridge
from megatron.bridge.recipes.common import _peft_common, _pretrain_common

def small_pretrain_config(hf_path: str = "meta-llama/Llama-3.1-8B") -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = AutoBridge.from_hf_pretrained(hf_path).to_megatron_provider(load_weights=False)
    cfg.tokenizer.vocab_size = DEFAULT_NULL_TOKENIZER_VOCAB_SIZE
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.context_parallel_size = 1
    if cfg.model.context_parallel_size > 1:
        cfg.model.tensor_model_parallel_size = 8
    return cfg

def fp8_pretrain_config() -> ConfigContainer:
    cfg = small_pretrain_config()
    cfg.train.micro_batch_size = 4
    cfg.mixed_precision = get_mixed_precision_config("bf16_with_fp8_current_scaling_mixed")
    return cfg

def small_peft_config() -> ConfigContainer:
    cfg = _peft_common()
    cfg.model = AutoBridge.from_hf_pretrained("meta-llama/Llama-3.1-70B").to_megatron_provider()
    cfg.peft.dim = 16
    return cfg

def own_config() -> ConfigContainer:
    cfg = _pretrain_common()
    cfg.model = OwnProvider()
    return cfg
)py";

TEST(Recipes, FunctionsOfMegatronBridgeAreReadOneByOne) {
  const std::string file = recipe_file("bridge_functions.py", kBridgeRecipes);
  EXPECT_EQ(megatron_bridge_recipes(file),
            (std::vector<std::string>{"small_pretrain_config", "fp8_pretrain_config", "small_peft_config",
                                      "own_config"}));
  const Imported small = import_megatron_bridge_recipe(file, "small_pretrain_config");
  EXPECT_NEAR(parameters_of(small), 8.03e9, 0.01e9);
  EXPECT_EQ(small.layout.tensor, 2) << "not what stands in a branch";
  EXPECT_EQ(small.layout.micro_batch, 2) << "of _pretrain_common()";
  EXPECT_EQ(small.workload.global_batch, 32);
  EXPECT_EQ(small.workload.sequence, 4096);
  EXPECT_EQ(small.layout.zero, 1);
  EXPECT_EQ(small.layout.precision, Precision::bf16);
  EXPECT_FALSE(has_note(small, "if cfg.model.context_parallel_size > 1")) << "is known";
  const Imported fp8 = import_megatron_bridge_recipe(file, "fp8_pretrain_config");
  EXPECT_EQ(fp8.layout.tensor, 2);
  EXPECT_EQ(fp8.layout.micro_batch, 4);
  EXPECT_EQ(fp8.layout.precision, Precision::fp8);
  const Imported peft = import_megatron_bridge_recipe(file, "small_peft_config");
  EXPECT_EQ(peft.layout.training->adapter_rank, 16);
  EXPECT_EQ(peft.workload.sequence, 2048);
  EXPECT_NE(refused([&] { import_megatron_bridge_recipe(file, "own_config"); }).find("made by OwnProvider()"),
            std::string::npos);
  EXPECT_NE(refused([&] { import_megatron_bridge(file); }).find("4 recipes"), std::string::npos);
}

// As src/megatron/bridge/models/deepseek/deepseek_v4_bridge.py and recipes/moonlight: functions compute the
// stages from the checkpoint's number of layers.
TEST(Recipes, StagesOfMegatronBridgeAreComputed) {
  const std::string file = recipe_file("bridge_stages.py", R"py(from megatron.bridge import AutoBridge
def set_layout(model):
    size = model.pipeline_model_parallel_size or 1
    layers = int(getattr(model, "num_layers", 0) or 0)
    each, more = divmod(layers, size)
    layout: list[list[str]] = []
    for rank in range(size):
        stage = ["embedding"] if rank == 0 else []
        stage.extend(["decoder"] * (each + int(rank < more)))
        if rank == size - 1:
            stage.append("loss")
        layout.append(stage)
    model.pipeline_model_parallel_layout = layout

def uneven_sft_config():
    cfg = _sft_common()
    cfg.model = AutoBridge.from_hf_config(AutoConfig.from_pretrained("Qwen/Qwen3-30B-A3B").text).to_provider()
    cfg.model.pipeline_model_parallel_size = 5
    cfg.model.tensor_model_parallel_size = 2
    cfg.model.expert_model_parallel_size = 8
    cfg.model.sequence_parallel = True
    cfg.model.seq_length = 65536
    cfg.dataset.seq_length = 65536
    set_layout(cfg.model)
    return cfg

def image_sft_config():
    cfg = _sft_common_vlm()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider()
    return cfg

def sound_sft_config():
    cfg = _sft_common()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider()
    cfg.model.freeze_audio_model = False
    return cfg

def muon_pretrain_config():
    cfg = F()
    cfg.model = AutoBridge.from_hf_pretrained("Qwen/Qwen3-30B-A3B").to_megatron_provider()
    cfg.optimizer.optimizer = "dist_muon"
    return cfg
)py");
  const Imported uneven = import_megatron_bridge_recipe(file, "uneven_sft_config");
  EXPECT_EQ(uneven.layout.layers_per_stage, (std::vector<int64_t>{10, 10, 10, 9, 9}));
  EXPECT_EQ(uneven.layout.expert_split(), 1) << "Bridge's default beside expert parallelism";
  EXPECT_EQ(uneven.workload.sequence, 65536);
  EXPECT_GE(uneven.model->max_positions, 65536) << "rotary positions have no table";
  const Imported muon = import_megatron_bridge_recipe(file, "muon_pretrain_config");
  EXPECT_EQ(muon.layout.training->optimizer, OptimizerKind::muon);
  EXPECT_EQ(muon.layout.zero, 1) << "each rank keeps the states of some matrices";
  EXPECT_THROW(import_megatron_bridge_recipe(file, "image_sft_config"), NotJudged);
  EXPECT_THROW(import_megatron_bridge_recipe(file, "sound_sft_config"), NotJudged);
}

// Classes of models set what their fields do not say.
TEST(Recipes, ProvidersOfMegatronBridge) {
  const std::string file = recipe_file("bridge_providers.py", R"py(
def hybrid_pretrain_config():
    cfg = _pretrain_common()
    cfg.model = HybridModelProvider(
        hybrid_layer_pattern="M-M*", num_layers=4, hidden_size=512, num_attention_heads=8, mamba_num_heads=16,
        tensor_model_parallel_size=1, activation_func=squared_relu)
    cfg.tokenizer.tokenizer_type = "NullTokenizer"
    cfg.tokenizer.vocab_size = 32000
    return cfg

def gemma_pretrain_config(layers=26):
    cfg = _pretrain_common()
    with text_alone():
        cfg.model = Gemma3ModelProvider(num_layers=layers, hidden_size=1152, window_size=512, vocab_size=262_144)
    return cfg

def other_pretrain_config():
    return gemma_pretrain_config(27)
)py");
  const Imported hybrid = import_megatron_bridge_recipe(file, "hybrid_pretrain_config");
  EXPECT_EQ(hybrid.model->norm, NormKind::rms_norm);
  EXPECT_EQ(hybrid.model->position, PositionKind::none);
  EXPECT_FALSE(hybrid.model->tied_embeddings);
  EXPECT_EQ(hybrid.model->vocab, 32000);
  EXPECT_EQ(hybrid.model->layers[1].mlp->activation, ActivationKind::squared_relu);
  EXPECT_TRUE(hybrid.model->layers[2].linear);
  const Imported gemma = import_megatron_bridge_recipe(file, "gemma_pretrain_config");
  EXPECT_EQ(gemma.model->name, "gemma3-1b");
  EXPECT_TRUE(has_note(gemma, "with text_alone():"));
  EXPECT_NE(refused([&] {
              import_megatron_bridge_recipe(file, "other_pretrain_config");
            }).find("num-attention-heads"),
            std::string::npos)
      << "no Gemma 3 has 27 layers";
}

TEST(Recipes, AModelIsNotReadFromTheNameOfATokenizer) {
  EXPECT_NE(refused([] {
              import_megatron_bridge(
                  recipe_file("nemo_tokenizer.py",
                              "from nemo.collections import llm\ntokenizer = run.Config(object, "
                              "model_name=\"EleutherAI/gpt-neox-20b\")\nrecipe = run.Config(llm.MambaModel)\n"
                              "recipe.trainer.strategy.tensor_model_parallel_size = 1\n"));
            }).find("no recipe of a model that is known"),
            std::string::npos);
}

TEST(Recipes, YamlOfMegatronBridge) {
  const Imported in = import_megatron_bridge(recipe_file(
      "override.yaml",
      "model:\n  num_layers: 16\n  hidden_size: 2048\n  num_attention_heads: 32\n  seq_length: 2048\n"
      "  vocab_size: 32000\n  tensor_model_parallel_size: 2\n  sequence_parallel: true\n"
      "  recompute_granularity: selective\n  recompute_modules: [mlp, layernorm]\n"
      "train:\n  global_batch_size: 64\n  micro_batch_size: 2\nmixed_precision: bf16_mixed\n"));
  EXPECT_EQ(in.model->layers.count(), 16);
  EXPECT_EQ(in.layout.tensor, 2);
  EXPECT_TRUE(in.layout.sequence_parallel);
  EXPECT_EQ(in.layout.micro_batch, 2);
  EXPECT_EQ(in.layout.recompute, Recompute::selective);
  EXPECT_EQ(in.layout.precision, Precision::bf16);
  EXPECT_EQ(in.workload.global_batch, 64);
}

// Performance recipes route by chance (moe_router_force_load_balancing, megatron-core 0.19.2); the others do
// not.
TEST(Recipes, BridgeForcesAnEvenLoadOnlyWhereARecipeSaysSo) {
  const auto balanced = [](const std::string& line) {
    const Imported in = import_megatron_bridge(
        recipe_file("balanced.py",
                    "from megatron.bridge.recipes.qwen import qwen3_30b_a3b_pretrain_config\n"
                    "config = qwen3_30b_a3b_pretrain_config()\nconfig.model.seq_length = 4096\n"
                    "config.train.micro_batch_size = 1\n" +
                        line));
    return contains(in.execution, std::string("balanced_experts=true"));
  };
  EXPECT_TRUE(balanced("config.model.moe_router_force_load_balancing = True\n"));
  EXPECT_FALSE(balanced("config.model.moe_router_force_load_balancing = False\n"));
  EXPECT_FALSE(balanced(""));
  EXPECT_FALSE(find_framework("megatron-bridge")->execution.traffic.balanced_experts);
}

}  // namespace
}  // namespace mpt::frameworks
