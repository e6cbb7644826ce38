// SPDX-License-Identifier: Apache-2.0
#include "frameworks/torchtitan/models.h"

#include "frameworks/export.h"
#include "frameworks/readers/python_file.h"
#include "models/zoo.h"

namespace mpt::frameworks {

const std::vector<TitanModel>& titan_models() {
  static const std::vector<TitanModel> models = [] {
    const std::string where = "frameworks/torchtitan/models.json";
    return from_json<std::vector<TitanModel>>(parse_json(template_text("models.json"), where), where);
  }();
  return models;
}

const TitanModel* titan_model(const ModelSpec& model) {
  for (const TitanModel& titan : titan_models()) {
    if (!titan.written) continue;
    ModelSpec known = models::load_model(titan.zoo);
    known.max_positions = model.max_positions;
    if (same_model(known, model)) return &titan;
  }
  return nullptr;
}

const TitanFamily& titan_family(const ModelSpec& model) {
  static const TitanFamily llama{"llama3", "Llama3"}, qwen{"qwen3", "Qwen3"},
      deepseek{"deepseek_v3", "DeepSeekV3"};
  if (model.attention().latent) return deepseek;
  return model.moe() != nullptr || model.attention().query_key_norm != QueryKeyNorm::none ? qwen : llama;
}

std::string titan_sizes(const ModelSpec& model) {
  Json sizes = to_json(model);
  for (const char* name : {"name", "type", "hub_id"}) sizes.erase(name);
  std::string text = "# As models are described in a plan.\nMODEL = {\n";
  for (const auto& [key, value] : sizes.items())
    text += fmt::format("    {}: {},\n", Json(key).dump(), python_text(value));
  return text + "}\n";
}

}  // namespace mpt::frameworks
