// SPDX-License-Identifier: Apache-2.0
#include "frameworks/transformers/classes.h"

#include "frameworks/dialects.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {
namespace {

constexpr const char* kFile = "classes.json";

const Json& classes() {
  static const Json all = parse_json(template_text(kFile), kFile);
  return all;
}

}  // namespace

std::string class_type(const ModelSpec& model, const std::string& framework) {
  if (!hub_id(model).empty() && !has_another_class_on_the_hub(model)) return model.type;
  const std::string written = type_in(dialect_of(framework), model);
  return written.empty() ? model.type : written;
}

Execution as_class_of(const ModelSpec& model, const Framework& framework, const Execution& execution) {
  const std::string type = class_type(model, framework.name);
  const auto holds = [&](const std::vector<std::string>& types) {
    return contains(types, type) || contains(types, "*");
  };
  if (!holds(framework.abilities.transformers_classes)) return execution;
  std::vector<std::string> changes;
  for (const Json& row : classes().at("rows"))
    if (holds(row.at("types")) && model.layers.any([&](const LayerKind& k) {
          return !row.contains("activation") || (k.mlp && enum_name(k.mlp->activation) == row["activation"]);
        }))
      for (const Json& change : row.at("execution")) changes.push_back(change);
  return with_changes(execution, changes, kFile);
}

bool has_mlps(const ModelSpec& model) {
  return model.layers.any([](const auto& k) { return k.mlp || (k.moe && k.moe->shared_ffn_hidden > 0); });
}

std::vector<std::string> class_names(const char* table, const Framework& framework, const ModelSpec& model) {
  if (framework.dialect != "transformers") return {};
  const Json type = class_type(model, framework.name);
  for (const auto& [names, types] : classes().at(table).items())
    if (contains(types, type)) return split_at(names, ' ');
  return {};
}

std::string kernel_packages(const Plan& plan) {
  return joined(class_names("kernels", framework_named(plan.layout.execution->framework, "plan"), plan.model),
                " and ");
}

bool moves_adapters(const Framework& framework, const ModelSpec& model, const Training& training) {
  return (training.adapts(AdapterTarget::up) || training.adapts(AdapterTarget::down)) && has_mlps(model) &&
         !class_names("moved_adapters", framework, model).empty();
}

}  // namespace mpt::frameworks
