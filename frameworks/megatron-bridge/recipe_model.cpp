// SPDX-License-Identifier: Apache-2.0
#include "frameworks/megatron-bridge/recipe_model.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

bool in_identifier(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// "llama318b" of "Llama-3.1-8B" and of "llama31_8b".
std::string letters_and_digits(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isalnum(c) == 0; });
  return lower_case(std::move(name));
}

bool is_called(const models::ZooModel& model, const std::string& name) {
  const std::string plain = letters_and_digits(name);
  if (plain == letters_and_digits(model.name)) return true;
  return std::any_of(model.aliases.begin(), model.aliases.end(), [&](const std::string& alias) {
    return plain == letters_and_digits(alias.substr(alias.rfind('/') + 1));
  });
}

// What stands before an ending such as "_pretrain_config".
std::string name_before(const std::string& text, const std::string& ending) {
  const size_t end = text.find(ending);
  if (end == std::string::npos) return "";
  size_t begin = end;
  while (begin > 0 && in_identifier(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

}  // namespace

std::optional<ModelSpec> model_of_recipe(const std::string& text) {
  for (const models::ZooModel& model : models::zoo_models()) {
    const bool is_named =
        std::any_of(model.aliases.begin(), model.aliases.end(), [&](const std::string& alias) {
          return text.find('"' + alias + '"') != std::string::npos ||
                 text.find('\'' + alias + '\'') != std::string::npos;
        });
    if (is_named) return models::load_model(model.name);
  }
  for (const char* ending :
       {"_pretrain_config", "_sft_config", "_finetune_config", ".pretrain_recipe", ".finetune_recipe"}) {
    const std::string name = name_before(text, ending);
    for (const models::ZooModel& model : models::zoo_models()) {
      if (!name.empty() && is_called(model, name)) return models::load_model(model.name);
    }
  }
  return std::nullopt;
}

}  // namespace mpt::frameworks
