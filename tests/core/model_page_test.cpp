// SPDX-License-Identifier: Apache-2.0

// docs/file_formats.md has the fields of a model file as the field lists have them. MPT_UPDATE_GOLDEN=1
// writes them.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/json.h"
#include "core/model_spec.h"

namespace mpt {
namespace {

std::string number_text(double number) { return fmt::format("{:.15g}", number); }

template <class M>
std::string type_text(const FieldRule& rule) {
  if constexpr (std::is_same_v<M, bool>) {
    return "true or false";
  } else if constexpr (std::is_arithmetic_v<M>) {
    return fmt::format("{} to {}", number_text(rule.minimum), number_text(rule.maximum));
  } else if constexpr (std::is_same_v<M, std::string>) {
    return "text";
  } else if constexpr (std::is_enum_v<M>) {
    std::string names;
    for (const std::string& name : enum_names<M>()) names += (names.empty() ? "" : ", ") + ("`" + name + "`");
    return names;
  } else if constexpr (detail::TypeTraits<M>::is_optional) {
    return type_text<typename M::value_type>(rule);
  } else if constexpr (detail::TypeTraits<M>::is_vector) {
    return "list";
  } else {
    return "object";
  }
}

// One row for each field.
struct PageWriter {
  std::string rows;

  template <class M, class T>
  void field(const char* name, M T::*, const char* doc, FieldRule rule = {}) {
    const bool needed = rule.required && !detail::TypeTraits<M>::is_optional;
    rows += fmt::format("| `{}`{} | {} | {} |\n", name, needed ? "" : " (may be absent)", doc,
                        type_text<M>(rule));
  }
};

template <class T>
std::string table_of(const char* title) {
  PageWriter writer;
  T::describe(writer);
  return fmt::format("{}\n\n| key | meaning | value |\n| --- | --- | --- |\n{}\n", title, writer.rows);
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
