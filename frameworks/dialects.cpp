// SPDX-License-Identifier: Apache-2.0
#include "frameworks/dialects.h"

#include "base/embedded.h"
#include "frameworks/framework.h"
#include "frameworks/megatron-core/dialect.h"
#include "models/family.h"
#include "models/hf_config.h"

namespace mpt::frameworks {

const EmbeddedFiles& dialect_files();  // generated

namespace {

models::Dialect read_table(const std::string& folder, const std::string& framework) {
  const std::string file = folder + "/dialect.json";
  const auto text = embedded_text(dialect_files(), file);
  MPT_CHECK(text, "no dialect of {}", folder);
  models::Dialect dialect =
      models::read_dialect(*text, "frameworks/" + file, framework,
                           folder == "megatron-core" ? megatron_codes() : models::DialectCodes{});
  MPT_CHECK(dialect.framework == folder, "frameworks/{} names {}", file, dialect.framework);
  return dialect;
}

}  // namespace

const models::Dialect& dialect_of(const std::string& framework) {
  static ReadOnce<models::Dialect> dialects;
  return *dialects.find(framework, [](const std::string& name) {
    const Framework* const known = find_framework(name);
    MPT_CHECK(known != nullptr && known->name == name, "{} has no dialect", name);
    return std::optional(read_table(known->dialect, name));
  });
}

void check_dialects() {
  models::family_types();
  for (const Framework& framework : known_frameworks()) dialect_of(framework.name);
}

std::string type_in(const models::Dialect& dialect, const ModelSpec& model) {
  return models::written_type(models::with_usual_training(model), dialect.types);
}

}  // namespace mpt::frameworks
