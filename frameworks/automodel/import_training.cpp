// SPDX-License-Identifier: Apache-2.0
#include "frameworks/automodel/import_training.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "frameworks/readers/adapter_modules.h"

namespace mpt::frameworks {
namespace {

// One pattern or a list of them.
std::vector<std::string> patterns_at(const Settings& recipe, const std::string& key) {
  const Json* const value = recipe.find(key);
  if (value == nullptr) return {};
  if (value->is_string()) return {value->get<std::string>()};
  std::vector<std::string> patterns;
  if (!value->is_array()) return patterns;
  for (const Json& item : *value) {
    if (item.is_string()) patterns.push_back(item.get<std::string>());
  }
  return patterns;
}

void set_adapters(const Settings& recipe, Imported& in) {
  Training& training = in.layout.training;
  training.adapter_rank = recipe.number("peft.dim", rule_of(&Training::adapter_rank), 8);
  std::vector<std::string> targets = patterns_at(recipe, "peft.target_modules");
  const std::vector<std::string> excluded = patterns_at(recipe, "peft.exclude_modules");
  const bool all = recipe.flag("peft.match_all_linear", false) || !excluded.empty();
  if (targets.empty() && !all) targets = {"*_proj"};
  set_adapter_targets(match_recipe(in, hugging_face_modules, all ? excluded : targets, all),
                      all ? excluded : targets,
                      recipe.at(all ? "peft.exclude_modules" : "peft.target_modules"), in);
  if (recipe.flag("quantization.load_in_4bit", false)) training.frozen_format = FrozenFormat::nf4;
  if (recipe.flag("quantization.load_in_8bit", false))
    in.notes.emplace_back("quantization.load_in_8bit: frozen weights are priced in 16 bits");
}

void set_recipe_optimizer(const Settings& recipe, Imported& in) {
  static const std::map<std::string, OptimizerKind> names{
      {"SGD", OptimizerKind::sgd},         {"AdamW8bit", OptimizerKind::adamw8},
      {"Adam8bit", OptimizerKind::adamw8}, {"Adafactor", OptimizerKind::adafactor},
      {"Muon", OptimizerKind::muon},       {"DistMuon", OptimizerKind::muon}};
  const std::string target = recipe.text("optimizer._target_", "torch.optim.AdamW");
  const std::string name = target.substr(target.rfind('.') + 1);
  const auto found = names.find(name);
  if (found != names.end()) in.layout.training.optimizer = found->second;
  if (found == names.end() && name.find("Adam") == std::string::npos)
    in.notes.push_back(fmt::format("optimizer {}: priced as AdamW", cut_text(name, 40)));
}

}  // namespace

void set_recipe_training(const Settings& recipe, Imported& in) {
  set_recipe_optimizer(recipe, in);
  if (recipe.has("peft")) set_adapters(recipe, in);
}

}  // namespace mpt::frameworks
