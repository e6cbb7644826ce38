// SPDX-License-Identifier: Apache-2.0

// config.json both ways: what is written is read as the same model, and written again as the same text.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>

#include "base/json.h"
#include "models/family.h"
#include "models/hf_config.h"
#include "models/values.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

std::string name_of(const std::optional<Value>& value) { return value ? enum_name(*value) : "nothing"; }

void expect_both_ways(const ModelSpec& model, const std::string& type, const std::string& what) {
  const auto difference = difference_of_type(model, type);
  ASSERT_EQ(name_of(difference), "nothing") << what << "\n" << write_hugging_face(model, type).dump();
  const Json written = write_hugging_face(model, type);
  const ModelSpec read = import_hugging_face(written, "config.json");
  EXPECT_EQ(read.type, type) << what;
  EXPECT_EQ(write_hugging_face(read, type).dump(1), written.dump(1)) << what;
}

TEST(BothWays, EveryModelOfTheZooIsWrittenAsItsOwnType) {
  size_t with_type = 0;
  for (const std::string& name : zoo_names()) {
    const ModelSpec model = load_model(name);
    EXPECT_NE(written_type(model), "") << name;
    if (model.type.empty()) continue;
    EXPECT_EQ(written_type(model), model.type) << name;
    expect_both_ways(model, model.type, name);
    ++with_type;
  }
  EXPECT_GE(with_type, 101u);
}

TEST(BothWays, EveryPublishedFileIsWrittenAsItsOwnType) {
  size_t files = 0;
  for (const char* folder : {"configs", "siblings"}) {
    const std::filesystem::path root = std::filesystem::path(MPT_SOURCE_DIR) / "tests/models" / folder;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
      if (entry.path().extension() != ".json") continue;
      const ModelSpec model = load_model(entry.path().string());
      expect_both_ways(model, model.type, entry.path().filename().string());
      ++files;
    }
  }
  EXPECT_GE(files, 60u);
}

// A config.json of a type with numbers by chance under the first key of each value that it has.
class RandomConfig {
 public:
  RandomConfig(const std::string& type, uint32_t seed) : family_(*find_family(type)), random_(seed) {
    json_["model_type"] = type;
    heads_ = one_of({2, 4, 8});
    const int64_t layers = one_of({4, 6, 8});
    put(Value::layers, layers);
    put(Value::hidden, 64 * heads_ * one_of({1, 2}));
    put(Value::heads, heads_);
    put(Value::kv_heads, one_of({1, 2, heads_}));
    for (const auto& [value, sizes] : sizes_of()) put(value, sizes[random_() % sizes.size()]);
    for (const Value value :
         {Value::tied, Value::qkv_bias, Value::mlp_bias, Value::normalized, Value::router_bias,
          Value::query_key_norm_if, Value::sinks, Value::window_sinks})
      if (chance()) put(value, chance());
    put_list(family_.mixers, size_t(family_.code == "longcat" ? layers / 2 : layers));
    put_list(family_.experts, size_t(layers));
    if (!family_.experts.except.empty() && chance()) put(family_.experts.except.front(), Json::array({0, 2}));
    if (!family_.mixers.indices.empty() && chance()) put(family_.mixers.indices.front(), Json::array({1, 2}));
    if (type == "bamba") json_["attn_layer_indices"] = {1};
    put_own_keys(type, layers);
  }
  const Json& json() const { return json_; }

 private:
  static const std::map<Value, std::vector<double>>& sizes_of() {
    static const std::map<Value, std::vector<double>> sizes{{Value::vocab, {1000, 32000}},
                                                            {Value::max_positions, {4096, 8192}},
                                                            {Value::ffn, {512, 768}},
                                                            {Value::head_dim, {64, 128}},
                                                            {Value::window, {128, 512}},
                                                            {Value::experts, {8, 16}},
                                                            {Value::experts_per_token, {1, 2}},
                                                            {Value::expert_ffn, {256, 512}},
                                                            {Value::shared_count, {1, 2}},
                                                            {Value::shared_ffn, {256}},
                                                            {Value::kv_rank, {64}},
                                                            {Value::query_rank, {96, 0}},
                                                            {Value::nope_dim, {32}},
                                                            {Value::rope_dim, {16, 32}},
                                                            {Value::v_dim, {32, 64}},
                                                            {Value::groups, {1, 4}},
                                                            {Value::groups_per_token, {1}},
                                                            {Value::index_heads, {4}},
                                                            {Value::index_dim, {32}},
                                                            {Value::index_chosen, {64}},
                                                            {Value::linear_heads, {8}},
                                                            {Value::linear_head_dim, {32}},
                                                            {Value::linear_key_heads, {4}},
                                                            {Value::linear_key_dim, {32}},
                                                            {Value::convolution, {3, 4}},
                                                            {Value::chunk, {256}},
                                                            {Value::window_heads, {4}},
                                                            {Value::window_kv_heads, {2}},
                                                            {Value::window_head_dim, {64}},
                                                            {Value::next_token_layers, {0, 1}},
                                                            {Value::logit_cap, {20.0}},
                                                            {Value::score_cap, {40.0}},
                                                            {Value::norm_epsilon, {1e-5, 1e-6}},
                                                            {Value::rotary_base, {10000.0, 500000.0}}};
    return sizes;
  }

  bool chance() { return random_() % 2 == 0; }
  int64_t one_of(std::vector<int64_t> values) { return values[random_() % values.size()]; }
  void put(Value value, double number) {
    const bool whole = number == double(int64_t(number));
    if (family_.has_keys(value))
      put(family_.keys.at(value).front(), whole ? Json(int64_t(number)) : Json(number));
  }
  void put(Value value, int64_t number) { put(value, double(number)); }
  void put(Value value, bool flag) {
    if (family_.has_keys(value)) put(family_.keys.at(value).front(), Json(flag));
  }
  void put(const std::string& path, const Json& value) { json_[Json::json_pointer("/" + path)] = value; }
  // Entries of lists by chance, of one form.
  void put_list(const LayerRule& rule, size_t layers) {
    if (!rule.condition.empty()) put(rule.condition.front(), true);
    if (rule.list.empty() || chance()) return;
    std::vector<Json> entries;
    for (const auto& [entry, word] : rule.words) {
      const bool number = entry == "0" || entry == "1";
      if (number == rule.numbers || rule.words.size() == 2)
        entries.push_back(number ? Json(std::stoi(entry)) : Json(entry));
    }
    Json list = Json::array();
    for (size_t l = 0; l < layers; ++l)
      list.push_back(entries[l < entries.size() ? l : random_() % entries.size()]);
    put(rule.list.front(), list);
  }
  void put_own_keys(const std::string& type, int64_t layers) {
    if (family_.code == "nemotron_h") json_["hybrid_override_pattern"] = chance() ? "M*-E" : "MM*EME";
    if (family_.code == "deepseek_v4") json_["compress_ratios"] = std::vector<int64_t>(size_t(layers), 4);
    if (family_.code == "deepseek_v3" || family_.code == "deepseek_v2")
      json_["n_shared_experts"] = one_of({1, 2});
    // Models with latent attention have it in a layer.
    if (family_.code == "kimi_linear") json_["linear_attn_config"]["full_attn_layers"] = {2, layers};
    if (family_.code == "jamba") json_["mamba_expand"] = 2;
    if (family_.code == "lfm2") json_["block_auto_adjust_ff_dim"] = chance();
    if (family_.code == "falcon" && chance()) json_["new_decoder_architecture"] = true;
    if (family_.code == "nemotron_nas") {
      Json block{{"attention", {{"n_heads_in_group", heads_}}}, {"ffn", {{"ffn_mult", 1.5}}}};
      Json blocks = Json::array({block});
      for (int64_t l = 1; l < layers; ++l) {
        block["attention"] = chance() ? Json{{"no_op", true}} : Json{{"n_heads_in_group", 2}};
        blocks.push_back(block);
      }
      json_["block_configs"] = blocks;
    }
    if (chance() && type != "deepseek_v4")
      json_["rope_scaling"] = {
          {"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}};
  }

  const Family& family_;
  std::mt19937 random_;
  Json json_ = Json::object();
  int64_t heads_ = 0;
};

// Each of the types six times over, with other sizes, kinds of layers and switches.
TEST(BothWays, RandomFilesOfEveryTypeAreWrittenAsTheyWereRead) {
  size_t models = 0;
  for (const std::string& type : family_types()) {
    size_t of_type = 0;
    std::string last;
    for (uint32_t seed = 0; seed < 12 && of_type < 7; ++seed) {
      const RandomConfig config(type, seed);
      ModelSpec model;
      try {
        model = import_hugging_face(config.json(), "config.json");
      } catch (const UserError& error) {
        last = error.what();
        continue;  // sizes that do not fit each other
      }
      expect_both_ways(model, type, config.json().dump());
      ++of_type;
    }
    EXPECT_GE(of_type, 3u) << type << ": " << last;
    models += of_type;
  }
  EXPECT_GE(models, 500u);
}

// Classes with latent attention repeat keys for groups of heads. Their defaults are other counts than the
// model's.
TEST(BothWays, LatentAttentionSaysItsHeadsOfKeys) {
  for (const char* name : {"deepseek-v3", "deepseek-v2", "moonlight-16b-a3b", "glm-4.7-flash"}) {
    const ModelSpec m = load_model(name);
    EXPECT_EQ(write_hugging_face(m, m.type)["num_key_value_heads"], m.attention().heads) << name;
  }
}

// What a type has no word for is named, and another type is taken.
// transformers 5.24.0 makes the mask of a window for these classes, whether layers have it or not.
TEST(BothWays, AWindowWithoutLayersIsAsLongAsTheSequence) {
  for (const char* const name : {"gemma2-2b", "gemma3-1b", "gpt-oss-20b", "olmo3-7b"}) {
    ModelSpec m = load_model(name);
    LayerKind kind = m.layers[0];
    kind.attention->window.reset();
    m.layers = LayerList(m.layers.count(), kind);
    const std::string type = written_type(m);
    EXPECT_EQ(write_hugging_face(m, type)["sliding_window"], m.max_positions) << name;
    expect_both_ways(m, type, name);
  }
  EXPECT_TRUE(write_hugging_face(load_model("exaone-4.0-1.2b"), "exaone4")["sliding_window"].is_null());
}

TEST(BothWays, TheFirstValueThatComesBackDifferentIsNamed) {
  ModelSpec m = load_model("llama3-8b");
  m.logit_cap = 30.0;
  EXPECT_EQ(name_of(difference_of_type(m, "llama")), "logit_cap");
  EXPECT_EQ(name_of(difference_of_type(load_model("gpt-oss-20b"), "llama")), "sinks");
  EXPECT_EQ(name_of(difference_of_type(load_model("phi4"), "qwen3")), "query_key_norm");
  EXPECT_EQ(load_model("phi4").type, "phi3");
  m = load_model("llama3-8b");
  m.type = "qwen3";
  EXPECT_EQ(written_type(m), "llama");
  m.head_bias = true;
  m.embedding_norm = true;
  EXPECT_EQ(written_type(m), "");
}

}  // namespace
}  // namespace mpt::models
