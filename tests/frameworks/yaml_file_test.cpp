// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/yaml_file.h"

#include <gtest/gtest.h>

#include "base/json.h"

namespace mpt::frameworks {
namespace {

// Python reads plain no, off and the like as false, as in YAML 1.1: accelerate then fails on
// `mixed_precision: no`.
TEST(YamlFile, TextThatPythonWouldReadAsATruthValueIsQuoted) {
  for (const char* word : {"no", "No", "yes", "on", "OFF", "y", "n", "true", "null", "12"}) {
    const Json value{{"key", word}};
    EXPECT_EQ(yaml_text(value), std::string("key: \"") + word + "\"\n");
    const std::filesystem::path file = testing::TempDir() + "/quoted.yaml";
    write_file_atomically(file, yaml_text(value));
    EXPECT_EQ(read_yaml(file), value) << word;
  }
  EXPECT_EQ(yaml_text(Json{{"key", "none"}}), "key: none\n");
  EXPECT_EQ(yaml_text(Json{{"key", false}}), "key: false\n");
}

// A comma in a list without quotes would make two values of one.
TEST(YamlFile, TextsComeBackAsTheyWere) {
  const Json texts{"a, b", "[x]", "{x}",    "- a",   "-a",    "--flag", "---",  "...",  "? a",       "?",
                   "&a",   "*a",  "!a",     "| a",   "> a",   "%a",     "@a",   "`a`",  "#a",        "a #b",
                   "a: b", "a:",  "'a'",    "\"a\"", " a",    "a ",     "a  b", "a\tb", "a\nb",      "",
                   "~",    "1e3", "-1.5",   "0x1f",  "inf",   ".inf",   "nan",  "<<",   "=",         "é",
                   "a=b",  "a/b", "(1, 2)", "a\\b",  "a-b_c", "1.2.3",  "1 2",  "-",    "2026-11-27"};
  WorkBudget budget("texts", 1 << 20);
  const Json value{{"list", texts}};
  EXPECT_EQ(yaml_value(yaml_text(value), budget), value) << yaml_text(value);
  for (const Json& text : texts) {
    const Json one{{"key", text}};
    EXPECT_EQ(yaml_value(yaml_text(one), budget), one) << yaml_text(one);
  }
}

}  // namespace
}  // namespace mpt::frameworks
