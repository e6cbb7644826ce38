// SPDX-License-Identifier: Apache-2.0
#include "models/hf_config.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "models/zoo.h"

namespace mpt::models {
namespace {

// vision_config of Qwen/Qwen3-VL-8B-Instruct, and an audio part whose file does not say how wide its MLPs
// are.
const char* const kTowers = R"({"text_config": {"hidden_size": 4096, "num_hidden_layers": 36},
  "vision_config": {"depth": 27, "hidden_size": 1152, "intermediate_size": 4304, "num_heads": 16},
  "audio_config": {"num_hidden_layers": 12, "hidden_size": 1024},
  "projector_config": {"hidden_size": 77}, "quantization_config": {"bits": 4}})";

TEST(Towers, AreNamedAndCounted) {
  const std::vector<Tower> towers = towers_of(parse_json(kTowers, "config.json"));
  ASSERT_EQ(towers.size(), 2u);
  EXPECT_EQ(towers[0], (Tower{"vision_config", 27, 1152, int64_t{27} * 1152 * (4 * 1152 + 2 * 4304)}));
  EXPECT_EQ(tower_text(towers[0]), "vision_config, 27 layers of width 1,152 with 411M parameters");
  EXPECT_EQ(tower_text(towers[1]), "audio_config, 12 layers of width 1,024");
}

// A name or an id says what a config.json says: the parts that plans leave out.
TEST(Towers, AreNamedForIdsOfTheHub) {
  const auto note_on = [](const std::string& name) {
    const ImportedModel read = load_imported_model(name);
    EXPECT_EQ(read.notes.size(), read.towers.size()) << name;
    return read.notes.empty() ? "" : read.notes.front();
  };
  const std::string lacks = "plans leave out memory and time of ";
  EXPECT_EQ(note_on("Qwen/Qwen3-VL-4B-Instruct"),
            lacks + "vision_config, 24 layers of width 1,024 with 302M parameters");
  EXPECT_EQ(note_on("google/gemma-3-27b-it"),
            lacks + "vision_config, 27 layers of width 1,152 with 411M parameters");
  EXPECT_EQ(note_on("gemma4-e4b"), lacks + "vision_config");  // of unknown sizes
  EXPECT_EQ(note_on("Qwen/Qwen3-4B"), "");
  EXPECT_EQ(load_imported_model("gemma4-e4b").towers.back().key, "audio_config");
}

TEST(Towers, OddValuesCountAsMissing) {
  for (const char* sizes : {R"("depth": -1, "hidden_size": 8)", R"("depth": "27", "hidden_size": 8)",
                            R"("depth": 1e30, "hidden_size": 8)", R"("depth": 2, "hidden_size": null)"}) {
    const std::string text = std::string(R"({"vision_config": {)") + sizes + "}}";
    EXPECT_TRUE(towers_of(parse_json(text, "config.json")).empty()) << text;
  }
  const Json large = parse_json(R"({"vision_config": {"depth": 100000, "hidden_size": 200000,
      "intermediate_size": 262144, "head_dim": 262144, "num_heads": 1}})",
                                "config.json");
  ASSERT_EQ(towers_of(large).size(), 1u);
  EXPECT_GT(towers_of(large)[0].parameters, 0);
  EXPECT_TRUE(towers_of(parse_json("[1]", "config.json")).empty());
}

}  // namespace
}  // namespace mpt::models
