// SPDX-License-Identifier: Apache-2.0

// Keys of single families in config.json: all are read, and notes name assumptions and omissions.

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/hf_config.h"
#include "models/zoo.h"
#include "tests/support/layer_traits.h"

namespace mpt::models {
namespace {

std::string refusal_of(const Json& config) {
  try {
    import_hugging_face(config, "config.json");
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

// A Llama-shaped file of the given type: four layers, 512 wide, 8 heads. `more` continues the object.
Json shaped(const std::string& type, const std::string& more = "") {
  return Json::parse(R"({"num_hidden_layers":4,"hidden_size":512,"num_attention_heads":8,"vocab_size":1000,
      "intermediate_size":1024,"model_type":")" +
                     type + "\"" + more + "}");
}

// The key of the scaling itself has priority over that of the whole file. The factor follows from it.
TEST(ConfigKeys, LongRopeHasThePositionsOfPreTraining) {
  const auto read = [](const std::string& more) {
    return *import_hugging_face(shaped("phi3", R"(,"max_position_embeddings":131072)" + more), "config.json")
                .attention()
                .rotation()
                .scaling;
  };
  const RotaryScaling wanted{.kind = RotaryScalingKind::longrope, .factor = 32.0, .original_positions = 4096};
  EXPECT_EQ(read(R"(,"original_max_position_embeddings":4096,"rope_scaling":{"type":"longrope"})"), wanted);
  EXPECT_EQ(read(R"(,"original_max_position_embeddings":8192,
                    "rope_scaling":{"rope_type":"longrope","original_max_position_embeddings":4096})"),
            wanted);
  EXPECT_EQ(read(R"(,"original_max_position_embeddings":4096,"rope_scaling":{"type":"su"})"), wanted)
      << "the name in files of before transformers 4.43";
  EXPECT_EQ(read(R"(,"rope_scaling":{"type":"longrope","factor":8})").factor, 8.0);
  EXPECT_EQ(
      read_hugging_face(shaped("phi3", R"(,"original_max_position_embeddings":4096)"), "config.json").ignored,
      std::vector<std::string>{});
}

// Layers that see the whole sequence have no window, whatever number the file has.
TEST(ConfigKeys, AWindowOfAllPositionsIsNone) {
  const auto windows = [](int64_t window) {
    Json config = shaped("phimoe", R"(,"max_position_embeddings":4096,"num_local_experts":4)");
    config["sliding_window"] = window;
    return contains(test::windowed_layers(import_hugging_face(config, "config.json")), true);
  };
  EXPECT_TRUE(windows(2047));
  EXPECT_FALSE(windows(4096));
  EXPECT_FALSE(windows(8192));
}

// Each layer has the base and the fraction of its entry, and only named kinds are scaled.
TEST(ConfigKeys, RotaryPositionsMayDifferBetweenLayers) {
  const std::string lists = R"(,"head_dim":64,"moe_num_experts":4,"moe_top_k":2,"moe_intermediate_size":64,
      "share_expert_dim":64,"moe_layers_enum":"2,3","sliding_window":16,"max_position_embeddings":4096,
      "layer_types":["full_attention","sliding_attention","sliding_attention","full_attention","sliding_attention"],
      "partial_rotary_factors":[0.5,1.0,1.0,0.5,1.0],
      "rope_scaling":{"rope_type":"llama3","factor":2.0,"original_max_position_embeddings":1024},
      "moe_router_activation":"sigmoid","moe_router_scaling_factor":3.0,"norm_expert_weight":true,"use_qk_norm":true)";
  const auto read = [&](const std::string& more) {
    return read_hugging_face(shaped("step3p5", lists + more), "config.json");
  };
  const ImportedModel whole =
      read(R"(,"rope_theta":[5e6,1e4,1e4,5e6,1e4],"yarn_only_types":["full_attention"])");
  EXPECT_EQ(whole.ignored, std::vector<std::string>{});
  EXPECT_EQ(whole.notes, std::vector<std::string>{});
  const auto rotary = [](const ImportedModel& m, int64_t l) { return *m.model.layers[l].attention->rotary; };
  EXPECT_EQ(rotary(whole, 0).base, 5e6);
  EXPECT_EQ(rotary(whole, 0).fraction, 0.5);
  EXPECT_EQ(rotary(whole, 0).scaling->factor, 2.0);
  EXPECT_EQ(rotary(whole, 1).base, 1e4);
  EXPECT_EQ(rotary(whole, 1).fraction, 1.0);
  EXPECT_FALSE(rotary(whole, 1).scaling);
  EXPECT_EQ(rotary(whole, 3), rotary(whole, 0));
  EXPECT_EQ(whole.model.moe()->scores, RouterScores::sigmoid);
  EXPECT_EQ(whole.model.moe()->routed_scale, 3.0);
  EXPECT_EQ(whole.model.attention().query_key_norm, QueryKeyNorm::per_head);
  const ImportedModel one = read(R"(,"rope_theta":5e5,"yarn_only_types":["sliding_attention"])");
  EXPECT_EQ(rotary(one, 1).base, 5e5);
  EXPECT_TRUE(rotary(one, 1).scaling);
  EXPECT_FALSE(rotary(one, 0).scaling);
  EXPECT_NE(refusal_of(shaped("step3p5", lists + R"(,"rope_theta":[5e6])")).find("1 entries for 4 layers"),
            std::string::npos);
}

TEST(ConfigKeys, AllKeysOfTheseFilesAreRead) {
  const struct {
    const char *type, *keys;
  } files[] = {
      {"bailing_moe_v2", R"("num_experts":8,"num_experts_per_tok":2,"num_shared_experts":1,"n_group":4,
        "topk_group":2,"moe_intermediate_size":64,"use_qk_norm":true,"score_function":"sigmoid",
        "moe_router_enable_expert_bias":true,"routed_scaling_factor":2.5,"norm_topk_prob":true,"rope_theta":6e5)"},
      {"kimi_linear",
       R"("model_max_length":1048576,"kv_lora_rank":64,"qk_nope_head_dim":16,"qk_rope_head_dim":8,
        "v_head_dim":16,"num_experts":8,"num_experts_per_token":2,"moe_intermediate_size":64,
        "num_shared_experts":1,"first_k_dense_replace":1,"moe_renormalize":true,
        "moe_router_activation_func":"sigmoid","linear_attn_config":{"num_heads":8,"head_dim":64,
        "full_attn_layers":[4],"short_conv_kernel_size":4})"},
      {"starcoder2", R"("num_key_value_heads":2,"norm_epsilon":1e-5,"sliding_window":64,"use_bias":true,
        "hidden_act":"gelu_pytorch_tanh","rope_theta":1e6)"},
      {"llama4_text", R"("use_qk_norm":true,"intermediate_size_mlp":1024,"rope_theta":5e5)"}};
  for (const auto& [type, keys] : files) {
    const ImportedModel read = read_hugging_face(shaped(type, std::string(",") + keys), "config.json");
    EXPECT_EQ(read.ignored, std::vector<std::string>{}) << type;
  }
  const auto model = [&](size_t i) {
    return import_hugging_face(shaped(files[i].type, std::string(",") + files[i].keys), "config.json");
  };
  EXPECT_EQ(model(0).attention().query_key_norm, QueryKeyNorm::per_head);
  EXPECT_EQ(model(0).moe()->scores, RouterScores::sigmoid);
  EXPECT_EQ(model(0).moe()->routed_scale, 2.5);
  EXPECT_TRUE(model(0).moe()->router_bias);
  EXPECT_EQ(
      import_hugging_face(Json::parse(R"({"model_type":"kimi_linear","num_hidden_layers":4,"hidden_size":512,
      "num_attention_heads":8,"vocab_size":1000,"intermediate_size":1024,"model_max_length":1048576,"kv_lora_rank":64,
      "qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,"n_shared_experts":null,"num_experts":8,
      "num_experts_per_token":2,"moe_intermediate_size":64,"linear_attn_config":{"num_heads":8,"head_dim":64,
      "full_attn_layers":[4]}})"),
                          "config.json")
          .max_positions,
      1048576);
  EXPECT_EQ(model(2).attention().window, 64);
  EXPECT_TRUE(model(2).tied_embeddings);
  EXPECT_TRUE(model(2).mlp().bias);
  EXPECT_FALSE(model(2).mlp().gated);
}

TEST(ConfigKeys, WhatIsAssumedOrLeftOutIsNoted) {
  const auto notes = [](const std::string& type, const std::string& more) {
    return read_hugging_face(shaped(type, more), "config.json").notes;
  };
  EXPECT_EQ(notes("llama", ""),
            std::vector<std::string>{"rope_theta is missing: 10,000, the default of this type, is used"});
  EXPECT_EQ(notes("llama", R"(,"rope_theta":10000)"), std::vector<std::string>{});
  EXPECT_EQ(notes("gpt2", R"(,"n_layer":4,"n_embd":512,"n_head":8)"), std::vector<std::string>{});
  EXPECT_EQ(notes("llama4_text", R"(,"rope_theta":5e5,"intermediate_size_mlp":1024)").size(), 1u)
      << "its norms";
  const std::string hybrid = R"(,"mamba_num_heads":8,"mamba_head_dim":64,"n_routed_experts":4,
      "num_experts_per_tok":2,"moe_intermediate_size":64,"hybrid_override_pattern":"M*ME",
      "num_nextn_predict_layers":1,"mtp_hybrid_override_pattern":)";
  EXPECT_EQ(notes("nemotron_h", hybrid + R"("E")"), std::vector<std::string>{});
  const std::vector<std::string> left_out = notes("nemotron_h", hybrid + R"("*E")");
  ASSERT_EQ(left_out.size(), 1u);
  EXPECT_NE(left_out.front().find("\"*\" of next-token modules is left out"), std::string::npos);
  EXPECT_EQ(import_hugging_face(shaped("nemotron_h", hybrid + R"("*E")"), "config.json").next_token_layers,
            1);
}

// A written model has the fields that its own values use, and reads back as itself.
TEST(ConfigKeys, FilesThatAreWrittenHoldWhatIsUsed) {
  const std::string yarn = model_spec_to_text(import_hugging_face(
      shaped("llama", R"(,"rope_scaling":{"rope_type":"yarn","factor":4})"), "config.json"));
  EXPECT_EQ(yarn.find("norm_bias"), std::string::npos) << "RMS norms have none";
  EXPECT_EQ(yarn.find("low_frequency_factor"), std::string::npos);
  EXPECT_NE(yarn.find("beta_fast"), std::string::npos);
  const std::string llama3 = model_spec_to_text(import_hugging_face(
      shaped("llama", R"(,"rope_scaling":{"rope_type":"llama3","factor":4})"), "config.json"));
  EXPECT_EQ(llama3.find("beta_fast"), std::string::npos);
  EXPECT_NE(llama3.find("high_frequency_factor"), std::string::npos);
  EXPECT_NE(model_spec_to_text(load_model("gpt2-124m")).find("norm_bias"), std::string::npos);
  for (const std::string& name : zoo_names()) {
    const ModelSpec model = load_model(name);
    EXPECT_EQ(from_json<ModelSpec>(Json::parse(model_spec_to_text(model)), name), model) << name;
  }
}

// transformers 5 calls all recurrent layers linear attention, and saves what single layers have of their own.
TEST(ConfigKeys, NamesOfTransformers5MeanTheOldOnes) {
  const auto read = [](const char* type, const std::string& more) {
    return import_hugging_face(shaped(type, "," + more), "config.json");
  };
  const std::string granite = R"("num_local_experts":4,"num_experts_per_tok":2,"shared_intermediate_size":64,
      "mamba_n_heads":16,"mamba_d_head":64,"layer_types":)";
  EXPECT_EQ(read("granitemoehybrid",
                 granite + R"(["linear_attention","linear_attention","full_attention","linear_attention"])"),
            read("granitemoehybrid", granite + R"(["mamba","mamba","attention","mamba"])"));
  const std::string nemotron = R"("mamba_num_heads":8,"mamba_head_dim":64,"n_routed_experts":4,
      "num_experts_per_tok":2,"moe_intermediate_size":64,)";
  EXPECT_EQ(read("nemotron_h",
                 nemotron + R"("layers_block_type":["linear_attention","moe","full_attention","mlp"])"),
            read("nemotron_h", nemotron + R"("hybrid_override_pattern":"ME*-")"));
  const std::string gemma =
      R"("head_dim":32,"num_key_value_heads":4,"num_experts":4,"top_k_experts":2,"moe_intermediate_size":64,
      "layer_types":["sliding_attention","sliding_attention","sliding_attention","full_attention"],)";
  EXPECT_EQ(read("gemma4_text", gemma + R"("per_layer_config":{"3":{"head_dim":64}})"),
            read("gemma4_text", gemma + R"("global_head_dim":64)"));
  const std::string kimi = R"("kv_lora_rank":64,"qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":16,
      "num_experts_per_token":2,"moe_intermediate_size":64,"num_experts":8,"num_shared_experts":1,)";
  EXPECT_EQ(
      read("kimi_linear", kimi + R"("linear_num_heads":8,"linear_head_dim":64,"linear_conv_kernel_dim":4,
      "layer_types":["linear_attention","linear_attention","linear_attention","full_attention"],
      "mlp_layer_types":["dense","sparse","sparse","sparse"])"),
      read("kimi_linear", kimi + R"("first_k_dense_replace":1,
      "linear_attn_config":{"num_heads":8,"head_dim":64,"short_conv_kernel_size":4,"full_attn_layers":[4]})"));
}

TEST(ConfigKeys, ListsOfEqualNumbersAreOneNumber) {
  const std::string more = R"(,"num_experts":8,"moe_intermediate_size":[64,64,64,64],"moe_topk":)";
  EXPECT_EQ(import_hugging_face(shaped("hunyuan_v1_moe", more + "[2,2,2,2]"), "config.json")
                .moe()
                ->experts_per_token,
            2);
  EXPECT_NE(refusal_of(shaped("hunyuan_v1_moe", more + "[2,2,4,2]")).find("/moe_topk: a list"),
            std::string::npos);
}

TEST(ConfigKeys, NoExpertsAreADenseModel) {
  const ModelSpec granite = import_hugging_face(
      shaped("granitemoehybrid",
             R"(,"num_local_experts":0,"num_experts_per_tok":0,"shared_intermediate_size":96,
             "layer_types":["mamba","mamba","attention","mamba"],"mamba_n_heads":16,"mamba_d_head":64)"),
      "config.json");
  EXPECT_EQ(granite.moe(), nullptr);
  EXPECT_EQ(granite.mlp().ffn_hidden, 96);
  EXPECT_EQ(import_hugging_face(shaped("qwen3_moe", R"(,"num_experts":0)"), "config.json").moe(), nullptr);
}

TEST(ConfigKeys, WithoutAttentionThereAreNoPositions) {
  const ModelSpec bamba = import_hugging_face(
      shaped("bamba", R"(,"attn_layer_indices":null,"mamba_n_heads":16,"mamba_d_head":64)"), "config.json");
  EXPECT_EQ(bamba.position, PositionKind::none);
  EXPECT_FALSE(bamba.layers.any([](const LayerKind& kind) { return kind.attention.has_value(); }));
}

TEST(Zoo, Mixtral8x22BHasTheVocabularyOfItsFile) { EXPECT_EQ(load_model("mixtral-8x22b").vocab, 32000); }

// transformers 5.24.0: modeling_gpt2.py, modeling_smollm3.py, modeling_qwen3_moe.py, modeling_gemma3.py,
// modeling_deepseek_v3.py.
TEST(ConfigKeys, SwitchesOfOtherAttentionAreRefused) {
  const auto refusal = [](const char* zoo, const char* type, const Json& more) {
    Json config = write_hugging_face(load_model(zoo), type);
    config.update(more);
    return refusal_of(config);
  };
  for (const auto& [zoo, type, key, on] :
       {std::tuple{"gpt2-124m", "gpt2", "scale_attn_by_inverse_layer_idx", true},
        {"gpt2-124m", "gpt2", "scale_attn_weights", false},
        {"smollm3-3b", "smollm3", "use_sliding_window", true},
        {"qwen3-30b-a3b", "qwen3_moe", "use_sliding_window", true},
        {"gemma3-1b", "gemma3_text", "use_bidirectional_attention", true},
        {"deepseek-v3", "deepseek_v3", "rope_interleave", false}}) {
    EXPECT_NE(refusal(zoo, type, {{key, on}}).find(key), std::string::npos) << key;
    EXPECT_EQ(refusal(zoo, type, {{key, !on}}).find(key), std::string::npos) << key;
  }
}

TEST(ConfigKeys, RopeParametersComeBeforeOlderKeys) {
  Json config = write_hugging_face(load_model("llama3-8b"), "llama");
  config.erase("rope_scaling");
  config["rope_theta"] = 10000.0;
  config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 2e6}};
  EXPECT_EQ(import_hugging_face(config, "c.json").layers[0].attention->rotary->base, 2e6);
}

}  // namespace
}  // namespace mpt::models
