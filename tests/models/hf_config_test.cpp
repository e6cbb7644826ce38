// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <gtest/gtest.h>

#include "models/parameter_count.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

std::string config_file(const std::string& name) {
  return std::string(MPT_SOURCE_DIR) + "/tests/models/configs/" + name + ".json";
}

std::string error_of(const Json& config) {
  try {
    import_hugging_face(config, "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// The published file and our own description of the same model agree in every field.
TEST(HuggingFaceConfig, PublishedFilesEqualTheZoo) {
  const std::pair<const char*, const char*> pairs[] = {
      {"meta-llama--Meta-Llama-3.1-8B", "llama3-8b"},   {"meta-llama--Meta-Llama-3.1-70B", "llama3-70b"},
      {"mistralai--Mixtral-8x7B-v0.1", "mixtral-8x7b"}, {"Qwen--Qwen3-8B", "qwen3-8b"},
      {"Qwen--Qwen3-30B-A3B", "qwen3-30b-a3b"},         {"deepseek-ai--DeepSeek-V3", "deepseek-v3"},
      {"openai--gpt-oss-20b", "gpt-oss-20b"},
  };
  for (const auto& [file, name] : pairs) {
    ModelSpec imported = load_model(config_file(file));
    imported.name = name;
    EXPECT_EQ(to_json(imported), to_json(load_model(name))) << file;
  }
}

TEST(HuggingFaceConfig, ReadsThroughTextConfigOfMultimodalFiles) {
  const ModelSpec model = load_model(config_file("Qwen--Qwen3-VL-8B-Instruct"));
  EXPECT_EQ(model.layers, 36);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.query_key_norm, QueryKeyNorm::per_head);
}

TEST(HuggingFaceConfig, KimiK2IsTheDeepSeekV3Architecture) {
  const ParameterCount count = count_parameters(load_model(config_file("moonshotai--Kimi-K2-Instruct")));
  EXPECT_NEAR(double(count.total) / 1e12, 1.03, 0.01);  // "1T total, 32B active" of the model card
  EXPECT_NEAR(double(count.active) / 1e9, 32.9, 0.5);
}

TEST(HuggingFaceConfig, ArchitecturesBeyondTheListAreRefusedByName) {
  for (const char* file : {"google--gemma-4-26B-A4B", "nvidia--Nemotron-H-56B-Base-8K"}) {
    try {
      load_model(config_file(file));
      FAIL() << file;
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find("unknown type \""), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("model_type"), std::string::npos) << error.what();
    }
  }
}

// Published keys of each family, as its configuration class names them, against the published parameter
// counts.
TEST(HuggingFaceConfig, ReadsEveryFamily) {
  struct Family {
    const char* json;
    int64_t parameters;
  };
  const Family families[] = {
      {R"({"model_type":"gpt2","n_layer":12,"n_embd":768,"n_head":12,"vocab_size":50257,"n_positions":1024})",
       124439808},
      {R"({"model_type":"gpt_neox","num_hidden_layers":44,"hidden_size":6144,"num_attention_heads":64,
           "intermediate_size":24576,"vocab_size":50432,"rotary_pct":0.25})",
       20554567680},
      {R"({"model_type":"opt","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,"ffn_dim":3072,
           "vocab_size":50272,"max_position_embeddings":2048,"word_embed_proj_dim":768})",
       125239296},
      {R"({"model_type":"bloom","n_layer":70,"hidden_size":14336,"n_head":112,"vocab_size":250880})",
       176247271424},
      {R"({"model_type":"falcon","num_hidden_layers":32,"hidden_size":4544,"num_attention_heads":71,
           "vocab_size":65024,"multi_query":true,"parallel_attn":true,"bias":false})",
       6921720704},
      {R"({"model_type":"llama","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "intermediate_size":11008,"vocab_size":32000})",
       6738415616},
      {R"({"model_type":"mistral","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"sliding_window":4096})",
       7241732096},
      {R"({"model_type":"mixtral","num_hidden_layers":32,"hidden_size":4096,"num_attention_heads":32,
           "num_key_value_heads":8,"intermediate_size":14336,"vocab_size":32000,"num_local_experts":8})",
       46702792704},
      {R"({"model_type":"qwen2","num_hidden_layers":28,"hidden_size":3584,"num_attention_heads":28,
           "num_key_value_heads":4,"intermediate_size":18944,"vocab_size":152064})",
       7615616512},
      {R"({"model_type":"qwen2_moe","num_hidden_layers":24,"hidden_size":2048,"num_attention_heads":16,
           "num_key_value_heads":16,"intermediate_size":5632,"vocab_size":151936,"num_experts":60,
           "num_experts_per_tok":4,"moe_intermediate_size":1408,"shared_expert_intermediate_size":5632})",
       14315784192},
      {R"({"model_type":"gemma","num_hidden_layers":28,"hidden_size":3072,"num_attention_heads":16,
           "num_key_value_heads":16,"head_dim":256,"intermediate_size":24576,"vocab_size":256000})",
       8537680896},
      {R"({"model_type":"gemma2","num_hidden_layers":46,"hidden_size":4608,"num_attention_heads":32,
           "num_key_value_heads":16,"head_dim":128,"intermediate_size":36864,"vocab_size":256000})",
       27227128320},
      {R"({"model_type":"phi3","num_hidden_layers":32,"hidden_size":3072,"num_attention_heads":32,
           "intermediate_size":8192,"vocab_size":32064})",
       3821079552},
      {R"({"model_type":"deepseek_v2","num_hidden_layers":27,"hidden_size":2048,"num_attention_heads":16,
           "intermediate_size":10944,"vocab_size":102400,"q_lora_rank":null,"kv_lora_rank":512,"qk_nope_head_dim":128,
           "qk_rope_head_dim":64,"v_head_dim":128,"n_routed_experts":64,"num_experts_per_tok":6,
           "moe_intermediate_size":1408,"n_shared_experts":2,"first_k_dense_replace":1})",
       15706484224},
  };
  for (const Family& family : families) {
    const Json config = Json::parse(family.json);
    const ModelSpec model = import_hugging_face(config, "config.json");
    EXPECT_EQ(count_parameters(model).total, family.parameters) << config["model_type"];
  }
}

TEST(HuggingFaceConfig, MissingWrongAndHugeFieldsAreNamedTogether) {
  const std::string error = error_of(Json::parse(
      R"({"model_type":"llama","num_hidden_layers":"two","hidden_size":1e300,"num_attention_heads":-1,"vocab_size":10})"));
  for (const char* part : {"/num_hidden_layers", "\"two\"", "/hidden_size", "/num_attention_heads",
                           "/intermediate_size", "missing"}) {
    EXPECT_NE(error.find(part), std::string::npos) << part << " in " << error;
  }
}

TEST(HuggingFaceConfig, UnknownTypeSuggestsTheNearest) {
  EXPECT_NE(error_of(Json{{"model_type", "lama"}}).find("did you mean \"llama\"?"), std::string::npos);
  EXPECT_NE(error_of(Json{{"architectures", "x"}}).find("/model_type: missing"), std::string::npos);
  EXPECT_NE(error_of(Json(3)).find("not an object"), std::string::npos);
  EXPECT_NE(error_of(Json{{"model_type", 3}}).find("missing"), std::string::npos);
}

TEST(HuggingFaceConfig, VariantsThatCannotBeSaidAreRefused) {
  const std::string error = error_of(Json::parse(
      R"({"model_type":"opt","num_hidden_layers":24,"hidden_size":1024,"num_attention_heads":16,"ffn_dim":4096,
          "vocab_size":50272,"do_layer_norm_before":false,"word_embed_proj_dim":512})"));
  EXPECT_NE(error.find("do_layer_norm_before"), std::string::npos);
  EXPECT_NE(error.find("word_embed_proj_dim"), std::string::npos);
}

// Python writes bare Infinity and NaN, which JSON does not have; published files hold them (Nemotron-H).
TEST(Zoo, BareInfinityOutsideStringsIsReadAsNull) {
  const std::string file = testing::TempDir() + "/infinity.json";
  write_file_atomically(file, R"({"model_type":"gpt2","n_layer":1,"n_embd":8,"n_head":1,"vocab_size":9,
      "a":[0.0, Infinity, -Infinity, NaN], "_name_or_path":"x/NaN \" Infinity"})");
  EXPECT_EQ(load_model(file).name, "NaN \" Infinity");
}

TEST(Zoo, UnknownNamesListTheNearest) {
  try {
    load_model("lama3-8b");
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean \"llama3-8b\"?"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(load_model("/no/such/config.json"), UserError);
  EXPECT_THROW(load_model(""), UserError);
}

}  // namespace
}  // namespace mpt::models
