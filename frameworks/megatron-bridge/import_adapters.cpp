// SPDX-License-Identifier: Apache-2.0

// src/megatron/bridge/peft/lora.py and module_matcher.py.

#include "frameworks/megatron-bridge/import_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "base/text.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/python_file.h"

namespace mpt::frameworks {
namespace {

constexpr int64_t kDefaultRank = 32, kHighestRank = 1 << 16;

// Of "LoRA(...)", "lora.LoRA(...)", "lora", or a name that the file does not explain.
std::string kind_of(const Json& peft) {
  std::string name = "something else";
  if (peft.is_string()) name = peft.get<std::string>();
  for (const char* key : {kCallKey, kNameKey}) {
    if (peft.is_object() && peft.contains(key) && peft[key].is_string()) name = peft[key].get<std::string>();
  }
  return name.substr(name.rfind('.') + 1);
}

int64_t rank_of(const Json& peft, Imported& in) {
  const auto dim = peft.find("dim");
  if (!peft.is_object() || dim == peft.end()) return kDefaultRank;
  if (dim->is_number_integer() && dim->get<int64_t>() >= 1 && dim->get<int64_t>() <= kHighestRank)
    return dim->get<int64_t>();
  in.notes.push_back(fmt::format("peft.dim {}: {} is taken", cut_text(python_text(*dim), 40), kDefaultRank));
  return kDefaultRank;
}

// Nothing where the file does not say a list of texts.
std::optional<std::vector<std::string>> patterns_at(const Json& peft, const char* key, Imported& in) {
  const auto found = peft.find(key);
  if (!peft.is_object() || found == peft.end() || found->is_null()) return std::nullopt;
  std::vector<std::string> patterns;
  if (found->is_array() &&
      std::all_of(found->begin(), found->end(), [](const Json& j) { return j.is_string(); })) {
    for (const Json& pattern : *found) patterns.push_back(pattern.get<std::string>());
    return patterns;
  }
  in.notes.push_back(fmt::format("peft.{}: the file does not say it as a list; the default is taken", key));
  return std::nullopt;
}

AdapterModules names_of(const ModelSpec& model, bool /*fused*/) { return megatron_modules(model); }

}  // namespace

void set_bridge_adapters(const Json& peft, const std::string& place, Imported& in) {
  if (peft.is_null()) return;
  const std::string kind = kind_of(peft);
  if (kind != "LoRA" && kind != "lora") {
    in.notes.push_back(fmt::format("peft {}: full training is priced", cut_text(kind, 40)));
    return;
  }
  in.layout.training.adapter_rank = rank_of(peft, in);
  const auto targets = patterns_at(peft, "target_modules", in);
  const auto excluded = patterns_at(peft, "exclude_modules", in);
  const bool excludes = targets && targets->empty();
  const std::vector<std::string> patterns =
      excludes ? excluded.value_or(std::vector<std::string>{})
               : targets.value_or(
                     std::vector<std::string>{"linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"});
  set_adapter_targets(match_recipe(in, names_of, patterns, excludes), patterns, place, in);
}

}  // namespace mpt::frameworks
