// SPDX-License-Identifier: Apache-2.0
#include "models/dialect.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/json.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

constexpr const char* kTable = R"({"fields": {"with_bias": "!no-bias", "vocabulary": "words"}, "rows": [
  {"value": "layers"},
  {"value": "hidden", "word": "width"},
  {"value": "ffn", "default": "hidden", "always": true},
  {"value": "activation", "default": "silu", "word": "act", "choices": [
    {"ours": {"gated": "true", "activation": "silu"}, "words": [{"word": "act", "is": "swiglu"}]},
    {"ours": {"gated": "false", "activation": "relu"}, "words": [{"word": "act", "is": "relu"}]}]},
  {"value": "mlp_bias", "word": "no-bias", "names": {"true": "false", "false": "true"}, "default": "true",
    "first": true},
  {"value": "output_bias", "fixed": "mlp_bias"},
  {"value": "qkv_bias", "word": "qkv", "default": "mlp_bias"},
  {"value": "heads"},
  {"value": "kv_heads", "default": "heads"},
  {"value": "vocab", "word": "words", "also": ["tokens"]},
  {"value": "max_positions", "default": "2048", "free": true},
  {"value": "mixers", "word": "kinds", "only": "lists", "values": ["full", "window"]},
  {"value": "window", "default": "0", "only": "lists"},
  {"value": "norm", "default": "rms_norm", "names": {"rms_norm": "RMS"}, "reads": {"root": "rms_norm"}},
  {"value": "rotary_base", "default": "10000", "whole": true},
  {"word": "dropout", "given": true}]})";

Dialect table(const std::string& text = kTable) { return read_dialect(text, "table.json", "ours", {}); }

std::string refusal(const std::string& text) {
  try {
    table(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "read";
}

// The table with something misspelt.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kTable;
  EXPECT_NE(text.find(from), std::string::npos) << from;
  return text.replace(text.find(from), from.size(), to);
}

ModelSpec plain(const std::function<void(LayerKind&)>& change = {}) {
  LayerKind kind;
  kind.attention = Attention{.heads = 8, .kv_heads = 2, .head_dim = 64, .rotary = Rotary{}};
  kind.mlp = Mlp{.ffn_hidden = 2048, .gated = true, .activation = ActivationKind::silu};
  if (change) change(kind);
  ModelSpec m;
  m.name = "plain";
  m.hidden = 512;
  m.vocab = 1000;
  m.max_positions = 2048;
  m.norm = NormKind::rms_norm;
  m.position = PositionKind::rotary;
  m.layers = LayerList(4, kind);
  return m;
}

// Words of a program in memory.
class Given : public WordSource {
 public:
  explicit Given(std::map<std::string, std::string> words) : words_(std::move(words)) {}
  bool has(const std::string& word) const override { return words_.contains(word); }
  std::optional<std::string> find(const std::string& word) const override {
    const auto found = words_.find(word);
    return found == words_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string source(const std::string& word) const override { return find(word).value_or(""); }
  std::string at(const std::string& word) const override { return "given at " + word; }

 private:
  std::map<std::string, std::string> words_;
};

std::string text(const Written& written) {
  std::string text;
  for (const Word& word : written.words) {
    if (!word.usual) text += word.name + "=" + text_of(word.value) + " ";
  }
  return text;
}

TEST(Dialect, WritesWhatIsNotUsualInOrder) {
  EXPECT_EQ(text(write(table(), values_of(plain()), {{"dropout", 0.1}})),
            "layers=4 width=512 ffn=2048 act=swiglu no-bias=true heads=8 kv_heads=2 words=1000 dropout=0.1 ");
  const ModelSpec biased = plain([](LayerKind& k) {
    k.mlp->bias = k.attention->qkv_bias = k.attention->output_bias = true;
    k.attention->rotary->base = 5e5;
  });
  EXPECT_EQ(text(write(table(), values_of(biased))),
            "layers=4 width=512 ffn=2048 act=swiglu heads=8 kv_heads=2 words=1000 rotary_base=500000 ");
}

TEST(Dialect, ReadsDefaultsFromOtherValues) {
  const Values values =
      read(table(),
           Given({{"layers", "2"}, {"width", "64"}, {"heads", "4"}, {"tokens", "100"}, {"norm", "root"}}));
  const ModelSpec m = model_of(values);
  EXPECT_EQ(m.layers.count(), 2);
  EXPECT_EQ(m.mlp().ffn_hidden, 64);
  EXPECT_EQ(m.attention().kv_heads, 4);
  EXPECT_EQ(m.vocab, 100);
  EXPECT_TRUE(m.mlp().bias && m.attention().output_bias && m.attention().qkv_bias);
}

TEST(Dialect, WrongWordsAreRefusedWithTheirPlace) {
  const auto why = [](std::map<std::string, std::string> more) {
    std::map<std::string, std::string> words{
        {"layers", "2"}, {"width", "64"}, {"heads", "4"}, {"words", "100"}};
    more.merge(words);
    try {
      read(table(), Given(more));
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  EXPECT_EQ(why({}), "read");
  EXPECT_NE(why({{"norm", "layer"}}).find("given at norm"), std::string::npos);
  EXPECT_NE(why({{"act", "gelu"}}).find("one of relu, swiglu"), std::string::npos) << why({{"act", "gelu"}});
  EXPECT_NE(why({{"heads", "many"}}).find("a whole number"), std::string::npos);
  EXPECT_NE(why({{"heads", "0"}}).find("a number from 1"), std::string::npos);
}

TEST(Dialect, AModelItHasComesBack) {
  EXPECT_EQ(first_difference(table(), plain()), std::nullopt);
  EXPECT_EQ(first_difference(table(), plain([](LayerKind& k) { k.mlp->activation = ActivationKind::relu; })),
            Value::activation)
      << "a gated ReLU has no word";
  using K = LayerKind;
  const std::vector<std::pair<Value, std::function<void(K&)>>> differences{
      {Value::qkv_bias, [](K& k) { k.mlp->bias = k.attention->output_bias = true; }},
      {Value::output_bias, [](K& k) { k.attention->output_bias = true; }},
      {Value::rotary_base, [](K& k) { k.attention->rotary->base = 0.5 + 1e4; }},
      {Value::sinks, [](K& k) { k.attention->sinks = true; }},
      {Value::score_cap, [](K& k) { k.attention->score_cap = 50.0; }},
      {Value::window, [](K& k) { k.attention->window = 128; }},
      {Value::chunk, [](K& k) { k.attention->chunk = 128; }},
      {Value::head_dim, [](K& k) { k.attention->head_dim = 128; }},
      {Value::linear_kind, [](K& k) {
         k.attention.reset();
         k.linear = LinearMixer{.heads = 4, .head_dim = 64, .key_heads = 4, .key_dim = 64};
       }}};
  for (const auto& [value, change] : differences) {
    const auto found = first_difference(table(), plain(change));
    ASSERT_TRUE(found) << enum_name(value);
    EXPECT_EQ(enum_name(*found), enum_name(value));
  }
  ModelSpec free = plain();
  free.max_positions = 77;
  EXPECT_EQ(first_difference(table(), free), std::nullopt);
}

TEST(Dialect, ListsAndRowsOfOneFramework) {
  const Dialect lists = read_dialect(kTable, "table.json", "lists", {});
  const ModelSpec windows = plain([](LayerKind& k) { k.attention->window = 128; });
  EXPECT_EQ(first_difference(lists, windows), std::nullopt);
  const ModelSpec chunks = plain([](LayerKind& k) { k.attention->chunk = 128; });
  EXPECT_EQ(first_difference(lists, chunks), Value::chunk);
  EXPECT_EQ(write(lists, values_of(chunks)).lacking, std::vector{Value::mixers});
  const Values values = read(lists, Given({{"layers", "2"},
                                           {"width", "64"},
                                           {"heads", "4"},
                                           {"words", "9"},
                                           {"kinds", "[\"full\",\"window\"]"}}));
  EXPECT_EQ(values.at(Value::mixers), Json({"full", "window"}));
  EXPECT_THROW(
      read(lists,
           Given(
               {{"layers", "1"}, {"width", "64"}, {"heads", "4"}, {"words", "9"}, {"kinds", "[\"chunk\"]"}})),
      UserError);
}

TEST(Dialect, MisspeltTablesAreRefused) {
  EXPECT_EQ(refusal(kTable), "read");
  for (const auto& [from, to, said] : std::vector<std::array<const char*, 3>>{
           {R"("value": "hidden")", R"("value": "hiden")", "hidden"},
           {R"("default": "rms_norm")", R"("default": "rms-norm")", "rms-norm"},
           {R"("default": "10000")", R"("default": "tenthousand")", "tenthousand"},
           {R"("rms_norm": "RMS")", R"("rmsnorm": "RMS")", "rmsnorm"},
           {R"("always")", R"("allways")", "always"},
           {R"("activation": "relu")", R"("activation": "rellu")", "rellu"},
           {R"("gated": "false")", R"("gatted": "false")", "gated"},
           {R"({"value": "heads"})", R"({"value": "heads", "code": "none such"})", "none such"},
           {R"({"value": "heads"})", R"({"value": "leading_dense"})", "leading_dense"},
           {R"({"value": "heads"})", R"({"always": true})", "neither value nor word"}})
    EXPECT_NE(refusal(changed(from, to)).find(said), std::string::npos)
        << to << ": " << refusal(changed(from, to));
}

TEST(Dialect, FieldsAreASecondSpelling) {
  const Dialect d = table();
  bool contrary = false;
  EXPECT_EQ(field_of(d, {"no-bias", true}, contrary), "with_bias");
  EXPECT_TRUE(contrary);
  EXPECT_EQ(field_of(d, {"words", 3}, contrary), "vocabulary");
  EXPECT_FALSE(contrary);
  EXPECT_EQ(field_of(d, {"kv-heads", 3}, contrary), "kv_heads");
  EXPECT_EQ(word_of(d, "with_bias"), "!no-bias");
  EXPECT_EQ(word_of(d, "num_layers"), "num-layers");
}

// Gemma 4's layers with windows have values of their own beside others without.
TEST(Values, ModelsComeBackFromTheirValues) {
  std::set<std::string> differ;
  for (const std::string& name : zoo_names()) {
    const ModelSpec model = load_model(name);
    const Values values = values_of(model);
    if (values.at(Value::unequal_layers) == Json(false) && first_difference(model, model_of(values)))
      differ.insert(name);
  }
  EXPECT_EQ(differ, (std::set<std::string>{}));
}

}  // namespace
}  // namespace mpt::models
