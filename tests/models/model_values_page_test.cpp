// SPDX-License-Identifier: Apache-2.0

// docs/model_values.md and the list of weights in docs/training.md say what the code says.
// MPT_UPDATE_GOLDEN=1 writes them.

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/family.h"
#include "models/family_files.h"
#include "models/value_map.h"
#include "tests/support/field_rows.h"
#include "tests/support/golden.h"

namespace mpt::models {
namespace {

constexpr const char* kPage = "docs/model_values.md";

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "`" : ", `") + name + "`";
  return text;
}

std::string range_of(Value value) {
  const FieldRule rule = rule_of(value);
  return std::isfinite(rule.maximum)
             ? fmt::format(" from {} to {}", test::number_text(rule.minimum), test::number_text(rule.maximum))
             : "";
}

std::string form_text(Value value) {
  const ValueForm& form = *form_of(value);
  switch (form.type) {
    case ValueType::count:
      return "whole number" + range_of(value);
    case ValueType::real:
      return "number" + range_of(value);
    case ValueType::option:
      return "number" + range_of(value) + ", or none";
    case ValueType::flag:
      return "true or false";
    case ValueType::word:
      return quoted(form.known);
    case ValueType::list:
      return "a word for each layer";
  }
  return "";
}

// How many types have a key for the value, and the first that has; without keys, the first that has another
// value than Llama.
std::string keys_text(Value value) {
  size_t count = 0;
  std::string key, fixed;
  const Family& usual = *find_family("llama");
  const auto note = [&](const std::string& type, const auto& own, const auto& others) {
    const auto found = own.find(value), other = others.find(value);
    if (fixed.empty() && found != own.end() && (other == others.end() || other->second != found->second))
      fixed = fmt::format("{} in `{}`", found->second, type);
  };
  for (const std::string& type : family_types()) {
    const Family& family = *find_family(type);
    if (family.has_keys(value) && ++count == 1)
      key = fmt::format("`{}` of `{}`", family.keys.at(value).front(), type);
    note(type, family.numbers, usual.numbers);
    note(type, family.words, usual.words);
  }
  return fmt::format("{} | {}", count, count > 0 ? key : fixed);
}

// Of all models, or of config.json alone.
std::string value_rows(bool of_models) {
  std::string rows;
  for (const auto& [value, name] : EnumNames<Value>::table()) {
    if ((form_of(value) != nullptr) != of_models) continue;
    const std::string form = of_models ? " | " + form_text(value) : "";
    rows += fmt::format("| `{}` | {}{} | {} |\n", name, words_of(value), form, keys_text(value));
  }
  return rows;
}

void expect_table(const std::string& title, const std::string& columns, const std::string& rows) {
  std::string dashes = "|";
  for (const char c : columns.substr(1)) dashes += c == '|' ? " --- |" : "";
  test::expect_part_of_file(kPage, title + "\n\n" + columns + "\n" + dashes + "\n", rows);
}

TEST(ModelValuesPage, HasEveryValue) {
  expect_table("## Values of models",
               "| value | what it is, after \"a framework lacks\" | form | types with a key | such as |",
               value_rows(true));
  expect_table("## Values of config.json alone", "| value | meaning | types with a key | such as |",
               value_rows(false));
}

TEST(ModelValuesPage, HasEveryFieldOfAFamily) {
  const std::string columns = "| key | meaning | value |";
  expect_table("## An entry", columns, test::rows_of<Family>());
  expect_table("## Rules for layers", columns, test::rows_of<LayerRule>());
  expect_table("## Names of weights", columns, test::rows_of<WeightNames>());
}

TEST(ModelValuesPage, HasEveryActivationAndPairOfFunctions) {
  std::string rows;
  for (const ActivationName& name : activation_names())
    rows += fmt::format("| `{}` | `{}` |\n", name.name, enum_name(name.kind));
  expect_table("## Activations", "| in config.json | in models |", rows);
  rows.clear();
  for (const std::string& code : family_code_names()) {
    std::vector<std::string> types;
    for (const std::string& type : family_types()) {
      if (find_family(type)->code == code) types.push_back(type);
    }
    rows += fmt::format("| `{}` | {} |\n", code, quoted(types));
  }
  expect_table("## Pairs of functions", "| code | types |", rows);
}

// The meanings are written by hand, one row a word.
TEST(ModelValuesPage, HasEveryWordForLayers) {
  const std::string page = read_file(std::string(MPT_SOURCE_DIR) + "/" + kPage);
  for (const auto& [value, head] : {std::pair{Value::mixers, "| mixer | meaning |\n| --- | --- |\n"},
                                    std::pair{Value::mlps, "| MLP | meaning |\n| --- | --- |\n"}}) {
    std::vector<std::string> words;
    ASSERT_NE(page.find(head), std::string::npos) << head;
    for (size_t at = page.find(head) + std::string(head).size(); page.compare(at, 3, "| `") == 0;
         at = page.find('\n', at) + 1)
      words.push_back(page.substr(at + 3, page.find('`', at + 3) - at - 3));
    EXPECT_EQ(words, known_words(value)) << "kinds of layers in " << kPage;
  }
}

TEST(TrainingPage, HasEveryTypeWithWeights) {
  std::string text, line;
  for (const std::string& type : family_types()) {
    if (!find_family(type)->weights) continue;
    if (line.size() + type.size() > 134) text += line + ",\n", line.clear();
    line += (line.empty() ? "`" : ", `") + type + "`";
  }
  test::expect_part_of_file("docs/training.md", "are made like one of them:\n", text + line + ".\n");
}

}  // namespace
}  // namespace mpt::models
