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

}  // namespace
}  // namespace mpt::frameworks
