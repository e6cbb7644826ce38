// SPDX-License-Identifier: Apache-2.0
#include "frameworks/transformers/hugging_face.h"

#include "frameworks/dialects.h"
#include "models/hf_config.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

// The longest sequence is the plan's, not the architecture's.
bool same_architecture(ModelSpec a, const ModelSpec& b) {
  a.max_positions = b.max_positions;
  return same_model(a, b);
}

// Classes with a dropout of 0.1 by default.
bool drops_out_by_default(const Json& config) {
  const std::string type = config.value("model_type", "");
  return type == "gpt2" || type == "opt" || type == "seed_oss";
}

// The id of any model on the hub with the same architecture.
std::string equal_hub_id(const ModelSpec& model) {
  for (const models::ZooModel& known : models::zoo_models())
    if (!known.aliases.empty() && same_architecture(known.model, model)) return known.aliases.front();
  return "";
}

}  // namespace

std::string hub_id(const ModelSpec& model) {
  const auto found = model.hub_id.empty() ? std::nullopt : models::model_of_id(model.hub_id);
  return found && same_architecture(found->model, model) ? model.hub_id : "";
}

bool has_another_class_on_the_hub(const ModelSpec& model) {
  const std::string& type = model.type;
  const bool known = type.starts_with("gemma") || type.starts_with("llama4") || type.starts_with("qwen3_5");
  return !known && !models::model_of_id(hub_id(model))->towers.empty();
}

std::string add_hugging_face_model(const ModelSpec& model, const std::string& framework, Exported& exported,
                                   BalanceLoss balance) {
  const ModelSpec untrained = models::with_usual_training(model);
  const std::string type = type_in(dialect_of(framework), untrained);
  std::string id = hub_id(model);
  if (!id.empty() && has_another_class_on_the_hub(model)) id.clear();
  if (type.empty() && id.empty()) id = equal_hub_id(model);
  if (type.empty() && !id.empty()) return id;
  if (type.empty()) {
    exported.warnings.push_back(
        "config.json cannot be written for this model: put the file that it is from beside the others");
    return "config.json";
  }
  Json config = models::write_hugging_face(untrained, type);
  // The hub's configurations leave it out.
  const bool loses_balance =
      balance == BalanceLoss::trained && model.moe() != nullptr && model.moe()->balance_loss > 0.0;
  if (model.moe() != nullptr) config["router_aux_loss_coef"] = model.moe()->balance_loss;
  if (loses_balance) config["output_router_logits"] = true;
  if (!id.empty() && !loses_balance && !drops_out_by_default(config)) return id;
  exported.files.push_back({"config.json", config.dump(2) + "\n"});
  return "config.json";
}

void set_hugging_face_model(Imported& in, const std::string& reference, const std::filesystem::path& folder) {
  auto known = models::model_of_id(reference);
  std::filesystem::path path = folder / reference;
  if (finds_folder(path) || reference.empty()) path /= "config.json";
  if (!known && finds_file(path)) known = models::load_imported_model(path.string());
  if (!known) {
    in.unknown_model = cut_text(reference, 60);
    return;
  }
  in.model = std::move(known->model);
  in.notes.insert(in.notes.end(), known->notes.begin(), known->notes.end());
}

}  // namespace mpt::frameworks
