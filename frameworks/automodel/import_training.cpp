// SPDX-License-Identifier: Apache-2.0
#include "frameworks/automodel/import_training.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <map>

#include "base/text.h"

namespace mpt::frameworks {
namespace {

// Linear layers of Hugging Face's decoders, and what gets adapters with them.
const std::pair<const char*, AdapterTarget> kModules[] = {
    {"model.layers.0.self_attn.q_proj", AdapterTarget::qkv},
    {"model.layers.0.self_attn.k_proj", AdapterTarget::qkv},
    {"model.layers.0.self_attn.v_proj", AdapterTarget::qkv},
    {"model.layers.0.self_attn.o_proj", AdapterTarget::output},
    {"model.layers.0.mlp.gate_proj", AdapterTarget::up},
    {"model.layers.0.mlp.up_proj", AdapterTarget::up},
    {"model.layers.0.mlp.down_proj", AdapterTarget::down}};

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

// A pattern is a module's own name or one with wildcards for its whole name
// (nemo_automodel/components/_peft/module_matcher.py).
bool matches(const std::vector<std::string>& patterns, const std::string& module) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return module.substr(module.rfind('.') + 1) == pattern ||
           fnmatch(pattern.c_str(), module.c_str(), 0) == 0;
  });
}

void set_adapters(const Settings& recipe, Imported& in) {
  Training& training = in.layout.training;
  training.adapter_rank = recipe.number("peft.dim", rule_of(&Training::adapter_rank), 8);
  std::vector<std::string> targets = patterns_at(recipe, "peft.target_modules");
  const std::vector<std::string> excluded = patterns_at(recipe, "peft.exclude_modules");
  const bool all = recipe.flag("peft.match_all_linear", false) || !excluded.empty();
  if (targets.empty() && !all) targets = {"*_proj"};
  int64_t of_queries = 0;
  for (const auto& [module, target] : kModules) {
    if (all ? matches(excluded, module) : !matches(targets, module)) continue;
    of_queries += target == AdapterTarget::qkv ? 1 : 0;
    if (!training.adapts(target)) training.adapter_targets.push_back(target);
  }
  if (of_queries == 1 || of_queries == 2)
    in.notes.emplace_back("adapters on some of queries, keys and values are taken as on all of them");
  if (matches(targets, "model.layers.0.mlp.experts") && in.model && in.model->moe() != nullptr)
    training.adapter_targets.push_back(AdapterTarget::experts);
  if (training.adapter_targets.empty())
    throw UserError(Problem{recipe.at("peft.target_modules"), "no layer of a decoder",
                            "patterns of names such as \"*_proj\" or \"*q_proj\"", ""});
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
