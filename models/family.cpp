// SPDX-License-Identifier: Apache-2.0
#include "models/family.h"

#include <string_view>

#include "base/json.h"

namespace mpt::models {

const std::vector<std::pair<std::string_view, std::string_view>>& family_files();  // generated

namespace {

using Families = std::map<std::string, Family>;

// A rule is inherited as a whole.
Family inherited(const Families& table, const Json& file, const std::string& type) {
  const Family& own = table.at(type);
  if (own.like.empty()) return own;
  MPT_CHECK(table.contains(own.like), "family {} is like {}, which is none", type, own.like);
  Family whole = inherited(table, file, own.like);
  for (const auto& [name, keys] : own.keys) whole.keys[name] = keys;
  for (const auto& [name, value] : own.numbers) whole.numbers[name] = value;
  for (const auto& [name, word] : own.words) whole.words[name] = word;
  if (file.at(type).contains("mixers")) whole.mixers = own.mixers;
  if (file.at(type).contains("experts")) whole.experts = own.experts;
  if (!own.code.empty()) whole.code = own.code;
  if (!own.source.empty()) whole.source = own.source;
  whole.like = own.like;
  return whole;
}

Families read_families() {
  const auto& [name, text] = family_files().front();
  const Json file = parse_json(std::string(text), std::string(name));
  const auto own = from_json<Families>(file, std::string(name));
  Families whole;
  for (const auto& [type, family] : own) whole[type] = inherited(own, file, type);
  return whole;
}

const Families& families() {
  static const Families table = read_families();
  return table;
}

}  // namespace

const Family* find_family(const std::string& type) {
  const auto found = families().find(type);
  return found == families().end() ? nullptr : &found->second;
}

std::vector<std::string> family_types() {
  std::vector<std::string> types;
  for (const auto& [type, family] : families()) types.push_back(type);
  return types;
}

}  // namespace mpt::models
