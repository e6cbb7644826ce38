// SPDX-License-Identifier: Apache-2.0

// Files of config.json as their owners publish them, without keys that say nothing about the model.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/layer_program.h"
#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

std::string file_of(const std::string& name) {
  return std::string(MPT_SOURCE_DIR) + "/tests/models/configs/" + name + ".json";
}

// Parameters in 10^9 without next-token layers and towers: all of them, and those of one token with both
// tables. They were counted by hand from the models' papers and code; `published` is what the owner prints,
// where it leaves out or adds other parts.
struct PublishedFile {
  const char* file;
  double total, active;
  const char* published;
};

const PublishedFile kPublishedFiles[] = {
    {"MiniMaxAI--MiniMax-M2.5", 228.7, 11.031, "model card: 230, 10 active"},
    {"MiniMaxAI--MiniMax-M3", 426.2, 25.962, "arXiv:2606.13392: 428 with the tower, 23 active"},
    {"Qwen--Qwen3-0.6B", 0.596, 0.596, "model card: 0.6"},
    {"Qwen--Qwen3-30B-A3B", 30.532, 3.353, "model card: 30.5, 3.3 active"},
    {"Qwen--Qwen3-8B", 8.191, 8.191, "model card: 8.2"},
    {"Qwen--Qwen3-Coder-480B-A35B-Instruct", 480.2, 35.475, "model card: 480, 35 active"},
    {"Qwen--Qwen3-VL-235B-A22B-Instruct", 235.1, 22.191, "model card: 235, 22 active"},
    {"Qwen--Qwen3-VL-8B-Instruct", 8.191, 8.191, "hub: 8.77 with the tower"},
    {"Qwen--Qwen3.5-27B", 26.896, 26.896, "Megatron-Bridge docs/models/qwen/qwen35-vl.md: 27"},
    {"Qwen--Qwen3.5-397B-A17B", 396.3, 17.349, "Megatron-Bridge, the same page: 397, 17 active"},
    {"XiaomiMiMo--MiMo-7B-Base", 7.623, 7.623, "hub: 7.83 with next-token layers"},
    {"XiaomiMiMo--MiMo-V2-Flash", 308.8, 15.446, "arXiv:2601.02780: 309, 15 active"},
    {"deepseek-ai--DeepSeek-V3.2", 671.9, 38.404, "model card: 671, 37 active"},
    {"deepseek-ai--DeepSeek-V3", 671.0, 37.552, "arXiv:2412.19437: 671, 37 active"},
    {"deepseek-ai--DeepSeek-V4-Pro", 1573.0, 49.779,
     "arXiv:2606.19348: 1600 with next-token layers, 49 active"},
    {"google--gemma-4-26B-A4B", 25.233, 3.823, "model card: 25.2, 3.8 active"},
    {"meta-llama--Llama-4-Maverick-17B-128E-Instruct", 400.7, 17.185, "model card: 400, 17 active"},
    {"meta-llama--Meta-Llama-3.1-405B", 405.9, 405.9, "arXiv:2407.21783: 405"},
    {"meta-llama--Meta-Llama-3.1-70B", 70.554, 70.554, "model card: 70.6"},
    {"meta-llama--Meta-Llama-3.1-8B", 8.030, 8.030, "model card: 8.03"},
    {"mistralai--Mixtral-8x7B-v0.1", 46.703, 12.880, "arXiv:2401.04088: 46.7, 12.9 active"},
    {"moonshotai--Kimi-K2-Instruct", 1026.4, 32.862, "docs.nvidia.com: 1026, 33 active"},
    {"moonshotai--Kimi-K2.5", 1026.4, 32.862, "model card: 1000 and a tower, 32 active"},
    {"moonshotai--Kimi-K3", 2779.5, 105.364, "NVIDIA-NeMo/Automodel, kimi-k3.mdx: 2800, 104 active"},
    {"nvidia--Llama-3_3-Nemotron-Super-49B-v1", 49.867, 49.867, "hub: 49.9"},
    {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31.578, 3.580, "NVIDIA's report: 31.6, 3.6 active"},
    {"nvidia--NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16", 549.3, 56.059, "docs.nvidia.com: 550, 55 active"},
    {"nvidia--Nemotron-H-56B-Base-8K", 56.324, 56.324, "arXiv:2504.03624: 56"},
    {"openai--gpt-oss-120b", 116.8, 5.712, "arXiv:2508.10925: 116.83, 5.13 without the token table"},
    {"openai--gpt-oss-20b", 20.915, 4.187, "arXiv:2508.10925: 20.91, 3.61 without the token table"},
    {"stepfun-ai--Step-3.7-Flash", 195.8, 10.864, "vLLM's recipe page: 196, 11 active"},
    {"zai-org--GLM-5.1", 743.9, 41.785, "NVIDIA's page: 744, 40 active"},
};

// Half a unit of the last digit that `value` is printed with above.
double rounding(double value) {
  return value >= 1000.0 || (value >= 100.0 && value * 10.0 == std::round(value * 10.0)) ? 0.051 : 0.00051;
}

TEST(PublishedFiles, HaveThePublishedParameters) {
  for (const PublishedFile& p : kPublishedFiles) {
    const ParameterCount count = count_parameters(load_model(file_of(p.file)));
    EXPECT_NEAR(double(count.total) / 1e9, p.total, rounding(p.total)) << p.file << "; " << p.published;
    EXPECT_NEAR(double(count.active) / 1e9, p.active, rounding(p.active)) << p.file << "; " << p.published;
  }
}

// GFLOP of the forward at 4,096 and at 32,768 tokens, with the head and without the token table. Counted by
// hand as above.
TEST(PublishedFiles, HaveTheWorkThatTheirLayersMake) {
  struct Work {
    const char* file;
    double at_4k, at_32k;
  };
  const Work table[] = {{"deepseek-ai--DeepSeek-V3", 83.5, 155.1},
                        {"deepseek-ai--DeepSeek-V3.2", 103.1, 125.0},
                        {"zai-org--GLM-5.1", 99.7, 113.7},
                        {"Qwen--Qwen3.5-27B", 52.5, 58.1},
                        {"Qwen--Qwen3.5-397B-A17B", 34.2, 41.2},
                        {"meta-llama--Llama-4-Maverick-17B-128E-Instruct", 34.3, 39.4},
                        {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 6.7, 8.1},
                        {"nvidia--Nemotron-H-56B-Base-8K", 112.2, 116.9},
                        {"openai--gpt-oss-120b", 10.9, 15.1},
                        {"XiaomiMiMo--MiMo-V2-Flash", 30.6, 35.9},
                        {"MiniMaxAI--MiniMax-M3", 52.7, 55.7},
                        {"google--gemma-4-26B-A4B", 8.3, 10.7},
                        {"deepseek-ai--DeepSeek-V4-Pro", 104.2, 110.4},
                        {"moonshotai--Kimi-K3", 212.6, 233.8}};
  for (const Work& w : table) {
    const ModelSpec model = load_model(file_of(w.file));
    for (const auto& [sequence, wanted] : {std::pair{4096, w.at_4k}, {32768, w.at_32k}}) {
      double flop = 0.0;
      const auto add = [&](const LayerProgram& program) {
        for (const Operator& op : program.operators) flop += forward_flop(op.shape);
      };
      add(head_program(model, Layout{}, sequence));
      for (int64_t l = 0; l < model.layers.count(); ++l) add(layer_program(model, l, Layout{}, sequence));
      EXPECT_NEAR(flop / double(sequence) / 1e9, wanted, 0.01 * wanted) << w.file << " at " << sequence;
    }
  }
}

// The folder holds nothing that no test reads.
TEST(PublishedFiles, AreAllRead) {
  size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(MPT_SOURCE_DIR) + "/tests/models/configs"))
    files += entry.path().extension() == ".json" ? 1 : 0;
  EXPECT_EQ(files, std::size(kPublishedFiles));
}

// Files of the sizes of `published`'s family members, by the keys that their configuration classes have.
TEST(Families, ReadFurtherModelsWithTheirPublishedParameters) {
  struct Model {
    const char* json;
    double billions;
    const char* published;
  };
  const Model models[] = {
      {R"({"model_type":"glm4","num_hidden_layers":61,"hidden_size":6144,"num_attention_heads":48,
           "num_key_value_heads":2,"head_dim":128,"intermediate_size":23040,"vocab_size":151552,
           "attention_bias":false})",
       32.57, "GLM-4-32B-0414 on the hub"},
      {R"({"model_type":"olmo2","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "intermediate_size":11008,"vocab_size":100352})",
       7.2986, "OLMo-2-1124-7B on the hub"},
      {R"({"model_type":"olmo3","num_hidden_layers":64,"hidden_size":5120,"num_attention_heads":40,
           "num_key_value_heads":8,"intermediate_size":27648,"vocab_size":100278})",
       32.23, "OLMo-3-32B on the hub"},
      {R"({"model_type":"smollm3","num_hidden_layers":36,"hidden_size":2048,"num_attention_heads":16,
           "num_key_value_heads":4,"intermediate_size":11008,"vocab_size":128256})",
       3.0751, "SmolLM3-3B on the hub"},
      {R"({"model_type":"seed_oss","num_hidden_layers":64,"hidden_size":5120,"num_attention_heads":80,
           "num_key_value_heads":8,"head_dim":128,"intermediate_size":27648,"vocab_size":155136})",
       36.151, "Seed-OSS-36B on the hub"},
      {R"({"model_type":"granite","num_hidden_layers":40,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":12800,"vocab_size":49159,"tie_word_embeddings":true})",
       8.1709, "granite-3.3-8b on the hub"},
      {R"({"model_type":"apertus","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":21504,"vocab_size":131072})",
       8.053, "Apertus-8B on the hub"},
      {R"({"model_type":"gemma3_text","num_hidden_layers":62,"hidden_size":5376,"num_attention_heads":32,
           "num_key_value_heads":16,"head_dim":128,"intermediate_size":21504,"vocab_size":262208,
           "tie_word_embeddings":true})",
       27.009, "Gemma 3 27B without its tower"},
      {R"({"model_type":"glm4_moe","num_hidden_layers":92,"hidden_size":5120,"num_attention_heads":96,
           "num_key_value_heads":8,"head_dim":128,"intermediate_size":12288,"vocab_size":151552,
           "attention_bias":true,"use_qk_norm":true,"n_routed_experts":160,"num_experts_per_tok":8,
           "moe_intermediate_size":1536,"n_shared_experts":1,"first_k_dense_replace":3})",
       352.80, "GLM-4.5 on the hub: 356.8 with its next-token layer"},
      {R"({"model_type":"qwen3_next","num_hidden_layers":48,"hidden_size":2048,"num_attention_heads":16,
           "num_key_value_heads":2,"head_dim":256,"intermediate_size":5120,"vocab_size":151936,
           "num_experts":512,"num_experts_per_tok":10,"moe_intermediate_size":512,
           "shared_expert_intermediate_size":512,"linear_num_value_heads":32})",
       79.674, "Qwen3-Next-80B-A3B: 80 without next-token layers"},
      {R"({"model_type":"olmoe","num_hidden_layers":16,"hidden_size":2048,"num_attention_heads":16,
           "num_key_value_heads":16,"intermediate_size":1024,"vocab_size":50304,"num_experts":64,
           "num_experts_per_tok":8})",
       6.9192, "OLMoE-1B-7B on the hub"},
      {R"({"model_type":"dots1","num_hidden_layers":62,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":32,"head_dim":128,"intermediate_size":10944,"vocab_size":152064,
           "n_routed_experts":128,"num_experts_per_tok":6,"moe_intermediate_size":1408,"n_shared_experts":2,
           "first_k_dense_replace":1,"sliding_window":null})",
       142.774, "dots.llm1: 142"},
      {R"({"model_type":"longcat_flash","num_layers":28,"hidden_size":6144,"num_attention_heads":64,
           "vocab_size":131072,"ffn_hidden_size":12288,"expert_ffn_hidden_size":2048,"n_routed_experts":512,
           "zero_expert_num":256,"moe_topk":12,"q_lora_rank":1536,"kv_lora_rank":512,"qk_nope_head_dim":128,
           "qk_rope_head_dim":64,"v_head_dim":128})",
       560.67, "LongCat-Flash, arXiv:2509.01322: 560"},
      {R"({"model_type":"lfm2","num_hidden_layers":16,"hidden_size":2048,"num_attention_heads":32,
           "num_key_value_heads":8,"block_ff_dim":12288,"vocab_size":65536,"block_multiple_of":256,
           "block_ffn_dim_multiplier":1.0,"full_attn_idxs":[2,5,8,10,12,14]})",
       1.1703, "LFM2-1.2B on the hub"},
      {R"({"model_type":"bamba","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":128256,"mamba_n_heads":128,
           "mamba_d_head":64,"mamba_n_groups":1,"mamba_d_state":128,"attn_layer_indices":[9,18,27]})",
       9.778, "Bamba-9B on the hub"},
      {R"({"model_type":"phi","num_hidden_layers":32,"hidden_size":2560,"num_attention_heads":32,
           "num_key_value_heads":32,"intermediate_size":10240,"vocab_size":51200,"partial_rotary_factor":0.4,
           "qk_layernorm":false})",
       2.7797, "phi-2 on the hub: 2.78"},
      {R"({"model_type":"gptj","n_layer":28,"n_embd":4096,"n_head":16,"n_inner":null,"vocab_size":50400,
           "rotary_dim":64})",
       6.0509, "gpt-j-6b on the hub: 6.05"},
      {R"({"model_type":"stablelm","num_hidden_layers":24,"hidden_size":2048,"num_attention_heads":32,
           "num_key_value_heads":32,"intermediate_size":5632,"vocab_size":100352,"use_qkv_bias":true})",
       1.6445, "stablelm-2-1_6b on the hub: 1.64"},
      {R"({"model_type":"mpt","n_layers":32,"d_model":4096,"n_heads":32,"vocab_size":50432})", 6.6493,
       "mpt-7b on the hub: 6.65"},
      {R"({"model_type":"dbrx","n_layers":40,"d_model":6144,"n_heads":48,"vocab_size":100352,
           "attn_config":{"kv_n_heads":8,"clip_qkv":8,"rope_theta":500000},
           "ffn_config":{"ffn_hidden_size":10752,"moe_num_experts":16,"moe_top_k":4}})",
       131.5965, "dbrx-base on the hub: 132"},
      {R"({"model_type":"nemotron","num_hidden_layers":32,"hidden_size":3072,"num_attention_heads":24,
           "num_key_value_heads":8,"head_dim":128,"intermediate_size":9216,"vocab_size":256000})",
       4.1905, "Minitron-4B-Base, with 24 heads as its config.json: 4.19"},
      {R"({"model_type":"solar_open","num_hidden_layers":48,"hidden_size":4096,"num_attention_heads":64,
           "num_key_value_heads":8,"head_dim":128,"moe_intermediate_size":1280,"vocab_size":196608,
           "n_routed_experts":128,"num_experts_per_tok":8,"n_shared_experts":1})",
       102.65, "Solar-Open-100B, model card: 102.6, 12 active"},
      {R"({"model_type":"minimax_text_01","num_hidden_layers":80,"hidden_size":6144,"num_attention_heads":64,
           "num_key_value_heads":8,"head_dim":128,"intermediate_size":9216,"vocab_size":200064,
           "num_local_experts":32,"num_experts_per_tok":2})",
       456.09, "MiniMax-Text-01: 456"},
  };
  for (const Model& m : models) {
    const Json config = Json::parse(m.json);
    const ModelSpec model = import_hugging_face(config, "config.json");
    EXPECT_NEAR(double(count_parameters(model).total) / 1e9, m.billions, 6e-4 * m.billions)
        << config["model_type"] << "; " << m.published;
  }
}

TEST(Families, AreAtLeastSixtyAndReadable) {
  EXPECT_GE(family_types().size(), 60u);
  for (const std::string& type : family_types()) {
    const Family* const family = find_family(type);
    ASSERT_NE(family, nullptr) << type;
    EXPECT_FALSE(family->source.empty()) << type << " has no source";
    for (const auto& [name, kind] : family->mixers.words) EXPECT_FALSE(kind.empty()) << type << " " << name;
  }
}

// A switch may bring something that no value names.
TEST(Families, RefuseASwitchWithItsReason) {
  const auto read = [](const char* switches) {
    Json config = Json::parse(R"({"model_type":"phi","num_hidden_layers":4,"hidden_size":512,
        "num_attention_heads":8,"vocab_size":1000,"intermediate_size":1024})");
    config.update(Json::parse(switches));
    return import_hugging_face(config, "config.json");
  };
  EXPECT_EQ(read(R"({"qk_layernorm":false})"), read("{}"));
  try {
    read(R"({"qk_layernorm":true})");
    ADD_FAILURE() << "phi with norms of queries and keys was read";
  } catch (const UserError& error) {
    EXPECT_NE(
        std::string(error.what()).find("config.json at /qk_layernorm: norms of queries and keys with biases"),
        std::string::npos)
        << error.what();
  }
}

TEST(Families, AnUnknownTypeIsReadAsAKnownOneWithWhatIsIgnored) {
  const Json config = Json::parse(R"({"model_type":"llama9","num_hidden_layers":4,"hidden_size":512,
      "num_attention_heads":8,"vocab_size":1000,"intermediate_size":1024,"new_kind_of_gate":true,"nothing":null})");
  EXPECT_THROW(read_hugging_face(config, "config.json"), UserError);
  const ImportedModel read = read_hugging_face(config, "config.json", "llama");
  EXPECT_EQ(read.model.layers.count(), 4);
  EXPECT_EQ(read.ignored, std::vector<std::string>{"new_kind_of_gate"});
}

// Another version is no misspelling: its layers may be others.
TEST(Families, ASuggestionIsOfTheSameVersion) {
  const auto error_of = [](const char* type) {
    try {
      import_hugging_face(Json{{"model_type", type}}, "config.json");
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(error_of("lama").find("did you mean \"llama\"?"), std::string::npos);
  EXPECT_NE(error_of("qwen3-moe").find("did you mean \"qwen3_moe\"?"), std::string::npos);
  EXPECT_EQ(error_of("deepseek_v5").find("did you mean"), std::string::npos);
  EXPECT_EQ(error_of("qwen4").find("did you mean"), std::string::npos);
}

}  // namespace
}  // namespace mpt::models
