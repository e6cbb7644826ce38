// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/json.h"
#include "models/parameter_count.h"
#include "models/zoo.h"
#include "tests/support/layer_traits.h"

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

// A Llama-shaped file of the given type: four layers, 512 wide, 8 heads. `more` continues the object.
Json small(const std::string& type, const std::string& more = "") {
  return Json::parse(R"({"num_hidden_layers":4,"hidden_size":512,"num_attention_heads":8,"vocab_size":1000,
      "intermediate_size":1024,"model_type":")" +
                     type + "\"" + more + "}");
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
    const ModelSpec imported = load_model(config_file(file));
    EXPECT_TRUE(same_model(imported, load_model(name))) << file;
    EXPECT_EQ(imported.type, load_model(name).type) << file;
    EXPECT_EQ(to_json(imported.layers.runs), to_json(load_model(name).layers.runs)) << file;
  }
}

TEST(HuggingFaceConfig, ReadsThroughTextConfigOfMultimodalFiles) {
  const ModelSpec model = load_model(config_file("Qwen--Qwen3-VL-8B-Instruct"));
  EXPECT_EQ(model.layers.count(), 36);
  EXPECT_EQ(model.hidden, 4096);
  EXPECT_EQ(model.attention().query_key_norm, QueryKeyNorm::per_head);
}

TEST(HuggingFaceConfig, KimiK2IsTheDeepSeekV3Architecture) {
  const ParameterCount count = count_parameters(load_model(config_file("moonshotai--Kimi-K2-Instruct")));
  EXPECT_NEAR(double(count.total) / 1e12, 1.03, 0.01);  // "1T total, 32B active" of the model card
  EXPECT_NEAR(double(count.active) / 1e9, 32.9, 0.5);
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
  EXPECT_NE(
      error_of(small("qwen2_moe", R"(,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":64,
            "shared_expert_intermediate_size":64,"use_sliding_window":true)"))
          .find("/use_sliding_window"),
      std::string::npos);
}

TEST(HuggingFaceConfig, SingleLayersMayHaveNoExperts) {
  const std::string experts =
      R"(,"num_key_value_heads":8,"num_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":64)";
  const auto read = [&](const std::string& more) {
    return test::expert_layers(import_hugging_face(small("qwen3_moe", experts + more), "config.json"));
  };
  EXPECT_EQ(read(R"(,"mlp_only_layers":[1])"), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(read(R"(,"decoder_sparse_step":2)"), (std::vector<bool>{false, true, false, true}));
}

// What the configuration classes of transformers 4.57 take for absent keys.
TEST(HuggingFaceConfig, AbsentKeysTakeTheDefaultsOfTheirClass) {
  struct Defaults {
    const char* type;
    int64_t max_positions, kv_heads, head_dim;
    double norm_epsilon, rotary_base;
    int64_t window;  // 0: none
    bool tied;
  };
  const Defaults table[] = {
      {"llama", 2048, 8, 64, 1e-6, 1e4, 0, false},        {"mistral", 131072, 8, 64, 1e-6, 1e4, 4096, false},
      {"mixtral", 131072, 8, 64, 1e-5, 1e6, 0, false},    {"gemma2", 8192, 4, 256, 1e-6, 1e4, 4096, true},
      {"phi3", 4096, 8, 64, 1e-5, 1e4, 0, false},         {"gemma", 8192, 16, 256, 1e-6, 1e4, 0, true},
      {"qwen2", 32768, 32, 64, 1e-6, 1e4, 0, false},      {"qwen3", 32768, 32, 128, 1e-6, 1e4, 0, false},
      {"gpt_oss", 131072, 8, 64, 1e-5, 15e4, 128, false},
  };
  for (const Defaults& d : table) {
    Json config = small(d.type, R"(,"num_local_experts":8)");
    config["num_attention_heads"] =
        std::max<int64_t>(8, d.kv_heads);  // the defaults suit the class's own size
    config["hidden_size"] = 64 * config["num_attention_heads"].get<int64_t>();
    const ModelSpec m = import_hugging_face(config, "config.json");
    EXPECT_EQ(m.max_positions, d.max_positions) << d.type;
    EXPECT_EQ(m.attention().kv_heads, d.kv_heads) << d.type;
    EXPECT_EQ(m.attention().head_dim, d.head_dim) << d.type;
    EXPECT_EQ(m.norm_epsilon, d.norm_epsilon) << d.type;
    EXPECT_EQ(m.attention().rotation().base, d.rotary_base) << d.type;
    EXPECT_EQ(m.attention().window.value_or(0), d.window) << d.type;
    EXPECT_EQ(m.tied_embeddings, d.tied) << d.type;
    EXPECT_EQ(m.mlp().activation_limit.value_or(0.0), std::string(d.type) == "gpt_oss" ? 7.0 : 0.0) << d.type;
  }
}

TEST(HuggingFaceConfig, NullSwitchesOffWhatAbsenceDefaults) {
  const ModelSpec m = import_hugging_face(
      small("mistral", R"(,"sliding_window":null,"num_key_value_heads":null,"head_dim":null)"),
      "config.json");
  EXPECT_FALSE(m.attention().window.has_value());
  EXPECT_EQ(m.attention().kv_heads, 8);
  const std::string latent =
      R"(,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":32,
      "n_routed_experts":8,"num_experts_per_tok":2,"moe_intermediate_size":128)";
  const auto read = [&](const std::string& more) {
    return import_hugging_face(small("deepseek_v3", latent + more), "config.json");
  };
  EXPECT_EQ(read(R"(,"n_shared_experts":1)").attention().latent->query_rank, 1536);
  EXPECT_EQ(test::expert_layers(read(R"(,"n_shared_experts":1)")),
            (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(read(R"(,"n_shared_experts":null,"q_lora_rank":null)").attention().latent->query_rank, 0);
  EXPECT_EQ(read(R"(,"n_shared_experts":null)").moe()->shared_ffn_hidden, 0);
  EXPECT_NE(error_of(small("deepseek_v3", latent)).find("/n_shared_experts: missing"), std::string::npos);
}

// DeepSeek-V2's class limits its router to groups where the method says so, DeepSeek-V3's unless it has one.
TEST(HuggingFaceConfig, RoutersOfDeepSeekAreLimitedToGroups) {
  const auto groups = [](const std::string& type, const std::string& more) {
    const ModelSpec m = import_hugging_face(
        small(
            type,
            R"(,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":32,"n_shared_experts":1,
              "n_routed_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":128)" +
                more),
        "config.json");
    return std::pair(m.moe()->expert_groups, m.moe()->groups_per_token);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(groups("deepseek_v3", ""), Pair(8, 4));
  EXPECT_EQ(groups("deepseek_v3", R"(,"n_group":1,"topk_group":1)"), Pair(1, 1));
  EXPECT_EQ(groups("deepseek_v2", R"(,"n_group":4,"topk_group":2)"), Pair(1, 1)) << "greedy";
  EXPECT_EQ(groups("deepseek_v2", R"(,"n_group":4,"topk_group":2,"topk_method":"group_limited_greedy")"),
            Pair(4, 2));
  const std::string error = error_of(small(
      "deepseek_v3",
      R"(,"kv_lora_rank":64,"qk_nope_head_dim":32,"qk_rope_head_dim":16,"v_head_dim":32,"n_shared_experts":1,
      "n_routed_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":128,"n_group":5,"topk_group":2)"));
  EXPECT_NE(error.find("/moe/expert_groups"), std::string::npos) << error;
}

TEST(HuggingFaceConfig, GemmaHasTheTanhFormWhateverItsFirstFilesSay) {
  const auto read = [](const std::string& more) {
    return import_hugging_face(small("gemma", R"(,"num_key_value_heads":8)" + more), "config.json")
        .mlp()
        .activation;
  };
  EXPECT_EQ(read(""), ActivationKind::gelu_tanh);
  EXPECT_EQ(read(R"(,"hidden_act":"gelu","hidden_activation":null)"), ActivationKind::gelu_tanh);
  EXPECT_EQ(read(R"(,"hidden_act":"silu")"), ActivationKind::silu);
  EXPECT_EQ(read(R"(,"hidden_act":"gelu","hidden_activation":"gelu")"), ActivationKind::gelu);
}

TEST(HuggingFaceConfig, RotarySettingsAreReadFromTheirNewPlace) {
  const ModelSpec m = import_hugging_face(
      small("glm",
            R"(,"rope_parameters":{"rope_theta":5e5,"partial_rotary_factor":0.5,"rope_type":"default"})"),
      "config.json");
  EXPECT_EQ(m.attention().rotation().base, 5e5);
  EXPECT_EQ(m.attention().rotation().fraction, 0.5);
  EXPECT_NE(error_of(small("llama", R"(,"rope_parameters":{"rope_theta":"x"})"))
                .find("/rope_parameters/rope_theta"),
            std::string::npos);
  EXPECT_NE(error_of(small("llama", R"(,"rope_parameters":3)")).find("/rope_parameters"), std::string::npos);
}

// transformers 5.24.0: modeling_llama.py and modeling_qwen2.py rotate whole heads whatever the file says, and
// modeling_glm.py and modeling_stablelm.py a part.
TEST(HuggingFaceConfig, OnlyTypesThatRotateAPartOfHeadsAreWrittenWithOne) {
  for (const char* name : {"glm4-9b", "stablelm-2-1.6b", "phi-1.5", "nemotron-mini-4b", "minimax-m2.5"}) {
    ModelSpec model = load_model(name);
    const std::string type = model.type;
    EXPECT_EQ(written_type(model, {"llama", "qwen2", "qwen3_moe", type}), type) << name;
    model.type.clear();
    EXPECT_EQ(written_type(model, {"llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "gemma"}), "") << name;
  }
}

TEST(HuggingFaceConfig, YarnIsReadWithItsNumbers) {
  const auto read = [](const std::string& yarn) {
    return *import_hugging_face(
                small("llama",
                      R"(,"max_position_embeddings":65536,"rope_scaling":{"type":"yarn","factor":16)" + yarn +
                          "}"),
                "config.json")
                .attention()
                .rotation()
                .scaling;
  };
  RotaryScaling wanted{.kind = RotaryScalingKind::yarn, .factor = 16.0, .original_positions = 65536};
  EXPECT_EQ(read(""), wanted);
  EXPECT_EQ(read(R"(,"attention_factor":1.2772588722239782)"), wanted) << "0.1 ln(16) + 1, the default";
  EXPECT_EQ(read(R"(,"attention_factor":null)"), wanted);
  wanted.original_positions = 4096;
  wanted.beta_fast = wanted.beta_slow = 1.0;
  wanted.mscale = 0.707;
  wanted.mscale_all_dim = 1.0;
  wanted.whole_dimensions = false;
  EXPECT_EQ(read(R"(,"original_max_position_embeddings":4096,"beta_fast":1,"beta_slow":1,"mscale":0.707,
                    "mscale_all_dim":1,"truncate":false)"),
            wanted);
  EXPECT_EQ(read(R"(,"attention_factor":1.5)").kind, RotaryScalingKind::other);
  EXPECT_EQ(read(R"(,"attention_factor":1.2772588722239782,"mscale":0.707,"mscale_all_dim":1)").kind,
            RotaryScalingKind::other)
      << "in place of their ratio";
}

TEST(HuggingFaceConfig, SquaredRelu) {
  EXPECT_EQ(import_hugging_face(small("llama", R"(,"hidden_act":"relu2")"), "config.json").mlp().activation,
            ActivationKind::squared_relu);
}

TEST(HuggingFaceConfig, TheWholeMultimodalModelDecidesWhetherTheHeadIsTied) {
  Json config{{"model_type", "qwen3_vl"}, {"tie_word_embeddings", true}};
  config["text_config"] = small("qwen3_vl_text", R"(,"num_key_value_heads":8)");
  EXPECT_TRUE(import_hugging_face(config, "config.json").tied_embeddings);
  config["text_config"]["tie_word_embeddings"] = false;
  EXPECT_TRUE(import_hugging_face(config, "config.json").tied_embeddings)
      << "as transformers 5.24.0 builds it";
  config["tie_word_embeddings"] = false;
  config["text_config"]["tie_word_embeddings"] = true;
  EXPECT_FALSE(import_hugging_face(config, "config.json").tied_embeddings);
  config.erase("tie_word_embeddings");
  EXPECT_TRUE(import_hugging_face(config, "config.json").tied_embeddings);
  config["text_config"]["hidden_size"] = "wide";
  EXPECT_NE(error_of(config).find("/text_config/hidden_size"), std::string::npos);
}

TEST(HuggingFaceConfig, WindowsFollowTheKindsOfTheLayers) {
  const std::string window = R"(,"num_key_value_heads":8,"use_sliding_window":true,"sliding_window":64)";
  const auto read = [&](const std::string& more) {
    return import_hugging_face(small("qwen2", window + more), "config.json").attention().window;
  };
  EXPECT_EQ(read(R"(,"max_window_layers":0)"), 64);
  EXPECT_EQ(read(R"(,"max_window_layers":4)"), std::nullopt);
  EXPECT_EQ(test::windowed_layers(
                import_hugging_face(small("qwen2", window + R"(,"max_window_layers":2)"), "c.json")),
            (std::vector<bool>{false, false, true, true}));

  const std::string sliding = R"("sliding_attention")", full = R"("full_attention")";
  const auto kinds = [&](const std::string& a, const std::string& b, const std::string& c,
                         const std::string& d) {
    return R"(,"layer_types":[)" + a + "," + b + "," + c + "," + d + "]";
  };
  const auto gemma = [&](const std::string& types) {
    return import_hugging_face(small("gemma2", types), "config.json");
  };
  EXPECT_EQ(test::windowed_layers(gemma(kinds(sliding, full, sliding, full))),
            (std::vector<bool>{true, false, true, false}));
  EXPECT_EQ(test::windowed_layers(gemma(kinds(sliding, sliding, sliding, sliding))),
            std::vector<bool>(4, true));
  EXPECT_EQ(test::windowed_layers(gemma(kinds(full, full, sliding, full))),
            (std::vector<bool>{false, false, true, false}));
  EXPECT_EQ(test::windowed_layers(gemma(kinds(full, full, full, full))), std::vector<bool>(4, false));
  for (const std::string& types :
       {kinds(sliding, full, sliding, R"("linear_attention")"), kinds(sliding, full, sliding, "7"),
        std::string(R"(,"layer_types":["full_attention"])"),
        std::string(R"(,"layer_types":"full_attention")")}) {
    EXPECT_NE(error_of(small("gemma2", types)).find("/layer_types"), std::string::npos) << types;
  }
}

TEST(HuggingFaceConfig, SizesThatCannotBeAreNamed) {
  EXPECT_NE(error_of(small("llama", R"(,"num_key_value_heads":0)")).find("/num_key_value_heads"),
            std::string::npos);
  EXPECT_NE(error_of(small("llama", R"(,"head_dim":0)")).find("/head_dim"), std::string::npos);
  Json odd = small("llama");
  odd["num_attention_heads"] = 7;
  EXPECT_NE(error_of(odd).find("/hidden_size: width 512 for 7 heads"), std::string::npos) << error_of(odd);
  odd["num_attention_heads"] = 0;
  EXPECT_NE(error_of(odd).find("/num_attention_heads"), std::string::npos);
  // Their product would not fit in 64 bits.
  const std::string huge = error_of(small("deepseek_v3", R"(,"kv_lora_rank":64,"qk_nope_head_dim":32,
      "qk_rope_head_dim":16,"v_head_dim":32,"n_routed_experts":8,"num_experts_per_tok":2,
      "moe_intermediate_size":999999999999,"n_shared_experts":999999999999)"));
  EXPECT_NE(huge.find("/moe_intermediate_size"), std::string::npos) << huge;
  EXPECT_NE(huge.find("/n_shared_experts"), std::string::npos) << huge;
}

// Every size is in its range, but bytes of the whole would overflow 64 bits.
TEST(HuggingFaceConfig, ModelsTooLargeToCountAreRefused) {
  const std::string huge = error_of(Json::parse(
      R"({"model_type":"llama","num_hidden_layers":100000,"hidden_size":16777216,"num_attention_heads":65536,
          "vocab_size":1000,"intermediate_size":16777216})"));
  EXPECT_NE(huge.find("parameters"), std::string::npos) << huge;
  ModelSpec own = load_model("deepseek-v3");
  own.layers.change([](LayerKind& kind) {
    if (!kind.moe) return;
    kind.moe->experts = 65536;
    kind.moe->expert.ffn_hidden = 1 << 24;
  });
  EXPECT_THROW(validate_model(own, "own.json"), UserError);
}

// Python writes bare Infinity and NaN, which JSON does not have; published files hold them (Nemotron-H).
TEST(Zoo, BareInfinityOutsideStringsIsReadAsNull) {
  const std::string file = testing::TempDir() + "/infinity.json";
  write_file_atomically(file, R"({"model_type":"gpt2","n_layer":1,"n_embd":8,"n_head":1,"vocab_size":9,
      "a":[0.0, Infinity, -Infinity, NaN], "_name_or_path":"x/NaN \" Infinity"})");
  EXPECT_EQ(load_model(file).name, "NaN \" Infinity");
}

TEST(Zoo, BrokenFilesAndPathsAreUserErrors) {
  const std::string file = testing::TempDir() + "/truncated.json";
  write_file_atomically(file, R"({"model_type":"gpt2","n_layer":1)");
  try {
    load_model(file);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("truncated.json"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("line 1"), std::string::npos) << error.what();
  }
  EXPECT_THROW(load_model(testing::TempDir()), UserError);  // a folder without config.json
  EXPECT_THROW(load_model(std::string(100000, 'x')), UserError);
  EXPECT_THROW(load_model("./" + std::string(100000, 'x') + ".json"), UserError);
}

// Plans are UTF-8, a folder's name may be any bytes.
TEST(Zoo, NamesOfImportedModelsArePlainText) {
  Json config = small("llama");
  config["_name_or_path"] = std::string(79, 'a') + "\u00e9";
  EXPECT_EQ(import_hugging_face(config, "config.json").name, std::string(79, 'a') + "_");
  EXPECT_EQ(import_hugging_face(small("llama"), "/models/\xff\xfe/config.json").name, "__");
}

TEST(Zoo, IdsOfHuggingFaceMeanTheModelOfThatArchitecture) {
  EXPECT_EQ(load_model("meta-llama/Llama-3.1-8B"), load_model("llama3-8b"));
  EXPECT_EQ(load_model("llama-3.1-8b"), load_model("llama3-8b"));
  std::set<std::string> ids;
  for (const ZooModel& model : zoo_models()) {
    for (const std::string& alias : model.aliases) {
      EXPECT_TRUE(ids.insert(alias).second) << alias << " is two models";
      EXPECT_EQ(load_model(alias).name, model.name) << alias;
    }
  }
  EXPECT_GE(ids.size(), 40u);
}

TEST(Zoo, HasFortyModelsAndMoreEachWithItsSource) {
  size_t named = 0;
  for (const ZooModel& model : zoo_models()) {
    EXPECT_FALSE(model.source.empty()) << model.name;
    named += model.source.starts_with("made for") ? 0 : 1;
  }
  EXPECT_GE(named, 40u);
}

// The files as their owners publish them.
TEST(Zoo, IdsHaveTheArchitectureOfTheirConfig) {
  size_t compared = 0;
  const std::filesystem::path folder = std::filesystem::path(MPT_SOURCE_DIR) / "tests/models/configs";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::string id = entry.path().stem().string();
    id.replace(id.find("--"), 2, "/");
    for (const ZooModel& model : zoo_models()) {
      if (std::find(model.aliases.begin(), model.aliases.end(), id) == model.aliases.end()) continue;
      const ModelSpec published = load_model(entry.path().string());
      EXPECT_TRUE(same_model(published, load_model(id))) << id;
      ++compared;
    }
  }
  EXPECT_GE(compared, 17u);
}

TEST(Zoo, UnknownIdsSayWhatToDownload) {
  try {
    load_model("mistralai/Codestral-22B-v0.1");
    FAIL();
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("https://huggingface.co/mistralai/Codestral-22B-v0.1/resolve/main/config.json"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("mpt-plan model list"), std::string::npos) << text;
  }
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

std::string told_of(const std::string& name) {
  try {
    load_model(name);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// Family first, its version, then the size, then what follows.
TEST(Zoo, TheNearestNameIsOfTheSameFamily) {
  EXPECT_NE(told_of("Qwen/Qwen2.5-Max-32B").find("did you mean \"qwen2.5-32b\"?"), std::string::npos);
  EXPECT_NE(told_of("llama3-80b-instruct").find("did you mean \"llama3-"), std::string::npos);
  EXPECT_NE(told_of("zai-org/GLM-4.8").find("did you mean \"glm-"), std::string::npos);
  EXPECT_NE(told_of("llama3-8x").find("did you mean \"llama3-8b\"?"), std::string::npos);
  EXPECT_NE(told_of("mixtral-8x7").find("did you mean \"mixtral-8x7b\"?"), std::string::npos);
}

// Models trained further, and copies that are stored in another way, have the sizes of what they are made of.
TEST(Zoo, IdsOfAFamilyHaveItsSizes) {
  const std::pair<const char*, const char*> ids[] = {
      {"Qwen/Qwen2.5-32B-Instruct", "qwen2.5-32b"},
      {"Qwen2.5-14B-Instruct", "qwen2.5-14b"},
      {"Qwen/Qwen2.5-Coder-32B-Instruct", "qwen2.5-32b"},
      {"Qwen/Qwen3-8B-Base", "qwen3-8b"},
      {"zai-org/GLM-4.6", "glm-4.5"},
      {"deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", "qwen2.5-32b"},
      {"meta-llama/Meta-Llama-3-8B", "llama3-8b"},
      {"meta-llama/Meta-Llama-3-70B-Instruct", "llama3-70b"},
      {"unsloth/Qwen2.5-7B-Instruct-bnb-4bit", "qwen2.5-7b-instruct"},
      {"Qwen/Qwen3-32B-FP8", "qwen3-32b"},
      {"Qwen/QwQ-32B", "qwen2.5-32b"},
      {"MiniMaxAI/MiniMax-M2.7", "minimax-m2.5"},
      {"mistralai/Devstral-Small-2-24B-Instruct-2512", "mistral-small-24b"},
      {"tiiuae/Falcon-H1-34B-Instruct", "falcon-h1-34b"},
      {"katanemo/Plano-Orchestrator-4B", "qwen3-4b-2507"},
      {"01-ai/Yi-34B-Chat", "yi-34b"}};
  for (const auto& [id, name] : ids) {
    const ImportedModel read = load_imported_model(id);
    EXPECT_TRUE(same_model(read.model, load_model(name))) << id;
    ASSERT_EQ(read.notes.size(), 1u) << id;
    EXPECT_NE(read.notes.front().find(std::string("the sizes of ") + name), std::string::npos) << id;
    const std::string whole = std::string(id).find('/') == std::string::npos ? "" : id;
    const bool narrow = whole.ends_with("4bit") || whole.ends_with("FP8");
    EXPECT_EQ(read.model.hub_id, narrow ? load_model(name).hub_id : whole) << "weights that are trained";
    EXPECT_EQ(read.notes.front().find("unquantised") != std::string::npos, narrow) << id;
  }
  EXPECT_TRUE(load_imported_model("meta-llama/Llama-3.1-8B").notes.empty()) << "the zoo's own";
  EXPECT_EQ(load_model("mistralai/Mistral-7B-Instruct-v0.3").name, "mistral-7b-v0.3")
      << "its vocabulary is its own";
}

// What was downloaded before is read where Hugging Face's libraries keep it.
TEST(Zoo, ReadsTheCacheOfHuggingFace) {
  const std::filesystem::path hub = testing::TempDir() + "/hub", model = hub / "models--me--mine-1B";
  std::filesystem::create_directories(model / "refs");
  std::filesystem::create_directories(model / "snapshots" / "abc");
  write_file_atomically(model / "refs" / "main", "abc");
  write_file_atomically(model / "snapshots" / "abc" / "config.json",
                        write_hugging_face(load_model("qwen3-0.6b"), "qwen3").dump());
  ASSERT_EQ(setenv("HF_HUB_CACHE", hub.c_str(), 1), 0);
  const ModelSpec read = load_model("me/mine-1B");
  EXPECT_EQ(read.name, "mine-1B");
  EXPECT_EQ(read.hub_id, "me/mine-1B");
  EXPECT_EQ(read.layers, load_model("qwen3-0.6b").layers);
  EXPECT_NE(told_of("me/other-1B").find("unknown model"), std::string::npos);
  unsetenv("HF_HUB_CACHE");
}

}  // namespace
}  // namespace mpt::models
