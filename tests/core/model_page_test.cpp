// SPDX-License-Identifier: Apache-2.0

// docs/file_formats.md has the fields of a model file as the field lists have them. MPT_UPDATE_GOLDEN=1
// writes them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/json.h"
#include "core/model_spec.h"
#include "tests/support/field_rows.h"

namespace mpt {
namespace {

template <class T>
std::string table_of(const char* title) {
  return fmt::format("{}\n\n| key | meaning | value |\n| --- | --- | --- |\n{}\n", title, test::rows_of<T>());
}

std::string page() {
  return table_of<ModelSpec>("A model:") +
         table_of<LayerList>("`layers`; `kinds` holds objects by a name of your choice:") +
         table_of<LayerRun>("An entry of `order`:") +
         table_of<LayerKind>(
             "A kind of layer. Each part that is there has its norm and its addition to the "
             "residual stream:") +
         table_of<Attention>("`attention`:") + table_of<LatentAttention>("`latent` of `attention`:") +
         table_of<CompressedAttention>("`compressed` of `attention`:") +
         table_of<Rotary>("`rotary` of `attention`:") + table_of<RotaryScaling>("`scaling` of `rotary`:") +
         table_of<AttentionIndex>("`index` of `attention`:") + table_of<LinearMixer>("`linear`:") +
         table_of<ShortConvolution>("`convolution`:") + table_of<Mlp>("`mlp`, and `expert` of `moe`:") +
         table_of<MixtureOfExperts>("`moe`:");
}

TEST(ModelPage, HasTheFieldsOfTheFieldLists) {
  const std::string file = std::string(MPT_SOURCE_DIR) + "/docs/file_formats.md";
  const std::string begin = "<!-- fields of a model file -->\n", end = "<!-- end of fields -->\n";
  std::string text = read_file(file);
  const size_t first = text.find(begin), last = text.find(end);
  ASSERT_NE(first, std::string::npos);
  ASSERT_NE(last, std::string::npos);
  const size_t at = first + begin.size();
  if (text.substr(at, last - at) == page()) return;
  if (std::getenv("MPT_UPDATE_GOLDEN") != nullptr)
    std::ofstream(file, std::ios::binary) << text.replace(at, last - at, page());
  ADD_FAILURE() << file << " has other fields: run with MPT_UPDATE_GOLDEN=1 and look at the difference";
}

TEST(ModelPage, ItsExamplesAreModels) {
  const std::string text = read_file(std::string(MPT_SOURCE_DIR) + "/docs/file_formats.md");
  const size_t last = text.find("<!-- fields of a model file -->");
  size_t examples = 0;
  for (size_t at = text.find("```json\n", text.find("## Model\n")); at < last; ++examples) {
    const size_t begin = at + 8, end = text.find("```", begin);
    const auto model =
        from_json<ModelSpec>(parse_json(text.substr(begin, end - begin), "example"), "example");
    EXPECT_NO_THROW(validate_model(model, "example")) << model.name;
    at = text.find("```json\n", end);
  }
  EXPECT_EQ(examples, 3);
}

}  // namespace
}  // namespace mpt
