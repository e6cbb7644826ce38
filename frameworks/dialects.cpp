// SPDX-License-Identifier: Apache-2.0
#include "frameworks/dialects.h"

#include "base/error.h"
#include "base/json.h"
#include "frameworks/framework.h"
#include "frameworks/megatron-core/dialect.h"
#include "models/family.h"
#include "models/hf_config.h"

namespace mpt::frameworks {

const std::vector<std::pair<std::string_view, std::string_view>>& dialect_files();  // generated

namespace {

models::Dialect read_file(const std::string& folder, const std::string& framework) {
  for (const auto& [file, text] : dialect_files()) {
    const std::string where = "frameworks/" + folder + "/" + std::string(file);
    if (parse_json(std::string(text), where).value("framework", "") != folder) continue;
    const bool megatron = folder == "megatron-core";
    return models::read_dialect(text, where, framework, megatron ? megatron_codes() : models::DialectCodes{});
  }
  MPT_CHECK(false, "no dialect of {}", folder);
}

}  // namespace

const models::Dialect& dialect_of(const std::string& framework) {
  static const auto dialects = [] {
    std::map<std::string, models::Dialect> read;
    for (const Framework& f : known_frameworks()) read[f.name] = read_file(f.dialect, f.name);
    return read;
  }();
  const auto found = dialects.find(framework);
  MPT_CHECK(found != dialects.end(), "{} has no dialect", framework);
  return found->second;
}

void check_dialects() {
  models::family_types();
  dialect_of(usual_framework().name);
}

std::string type_in(const models::Dialect& dialect, const ModelSpec& model) {
  return models::written_type(models::with_usual_training(model), dialect.types);
}

}  // namespace mpt::frameworks
