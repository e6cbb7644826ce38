// SPDX-License-Identifier: Apache-2.0
#include "core/flat_model.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "core/model_spec.h"

namespace mpt {
namespace {

// A model as version 0.1 wrote it.
Json old_model(const std::string& more) {
  return Json::parse(R"({"name":"old","layers":8,"hidden":64,"vocab":100,"max_positions":32,"norm":"rms_norm",
      "norm_epsilon":1e-06,"position":"rotary","rotary_base":5000.0,"rotary_fraction":0.5,"attention":"multi_head",
      "heads":4,"kv_heads":2,"head_dim":16,"qkv_bias":true,"attention_output_bias":false,"query_key_norm":"per_head",
      "attention_sinks":false,"gated_mlp":true,"activation":"silu","ffn_hidden":128,"mlp_bias":false,
      "tied_embeddings":false)" +
                     more + "}");
}

ModelSpec read(const std::string& more) {
  Json json = old_model(more);
  list_layers(json);
  const auto model = from_json<ModelSpec>(json, "old.json");
  validate_model(model, "old.json");
  return model;
}

TEST(FlatModel, BecomesAListOfEqualLayers) {
  const ModelSpec model = read("");
  EXPECT_EQ(model.layers.count(), 8);
  ASSERT_EQ(model.layers.kinds.size(), 1);
  const LayerKind& kind = model.layers[0];
  EXPECT_EQ(kind.attention->heads, 4);
  EXPECT_EQ(kind.attention->kv_heads, 2);
  EXPECT_TRUE(kind.attention->qkv_bias);
  EXPECT_FALSE(kind.attention->output_bias);
  EXPECT_EQ(kind.attention->query_key_norm, QueryKeyNorm::per_head);
  EXPECT_EQ(kind.attention->rotary, (Rotary{5000.0, 0.5, {}}));
  EXPECT_EQ(kind.mlp->ffn_hidden, 128);
  EXPECT_TRUE(kind.mlp->gated);
  EXPECT_FALSE(kind.moe.has_value());
}

TEST(FlatModel, IntervalsBecomeTheList) {
  const ModelSpec model = read(R"(,"sliding_window":16,"sliding_window_interval":2,"moe":{"experts":8,
      "experts_per_token":2,"expert_ffn_hidden":32,"shared_ffn_hidden":0,"shared_gate":false,"router_bias":true,
      "leading_dense_layers":1,"layer_interval":3,"balance_loss":0.01})");
  std::string windows, experts;
  for (const bool windowed : windowed_layers(model)) windows += windowed ? '1' : '0';
  for (const bool has : expert_layers(model)) experts += has ? '1' : '0';
  EXPECT_EQ(windows, "10101010");
  EXPECT_EQ(experts, "00010010");
  EXPECT_EQ(model.moe()->expert.ffn_hidden, 32);
  EXPECT_TRUE(model.moe()->expert.gated);
  EXPECT_TRUE(model.moe()->router_bias);
  EXPECT_EQ(model.moe()->balance_loss, 0.01);
}

TEST(FlatModel, LatentAttentionKeepsItsRotaryPart) {
  const ModelSpec model =
      read(R"(,"latent":{"query_rank":0,"key_value_rank":8,"nope_head_dim":8,"rope_head_dim":8,
      "value_head_dim":8})");
  EXPECT_EQ(model.attention().latent->key_value_rank, 8);
  EXPECT_TRUE(model.attention().rotary.has_value());
}

TEST(FlatModel, AnythingElseIsLeftAlone) {
  Json json = old_model("");
  list_layers(json);
  const Json once = json;
  list_layers(json);
  EXPECT_EQ(json, once);
  for (const char* text : {"3", "null", "[]", R"({"layers":4})", R"({"heads":4,"layers":"four"})"}) {
    Json other = Json::parse(text);
    list_layers(other);
    EXPECT_EQ(other, Json::parse(text));
  }
}

TEST(FlatModel, AnEndlessNumberOfLayersIsRefused) {
  Json json = old_model("");
  json["layers"] = 2000000000;
  list_layers(json);
  EXPECT_THROW(validate_model(from_json<ModelSpec>(json, "old.json"), "old.json"), UserError);
}

}  // namespace
}  // namespace mpt
