// SPDX-License-Identifier: Apache-2.0

// TOML with the keys of torchtitan/config/job_config.py at v0.2.2, as people still have it.

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/import.h"
#include "frameworks/readers/toml_file.h"
#include "frameworks/torchtitan/import.h"

namespace mpt::frameworks {
namespace {

void set_toml_recompute(const Settings& t, Layout& l) {
  const std::string mode = t.text("activation_checkpoint.mode", "selective");
  const char* const key =
      "activation_checkpoint.selective_ac_option";  // a number, perhaps in quotes, or "op"
  const bool is_number = t.has(key) && t.find(key)->is_number_integer();
  const std::string option = is_number ? t.find(key)->dump() : t.text(key, "2");
  l.recompute = mode == "none" ? Recompute::none : mode == "full" ? Recompute::full : Recompute::selective;
  const int64_t every = number_of<int64_t>(option).value_or(0);
  if (mode != "selective" || every < 1) return;
  // Every n-th layer as a whole.
  l.recompute = Recompute::full;
  for (const int64_t layers : l.layers_per_stage) l.recomputed_layers.push_back(layers / every);
  if (every == 1) l.recomputed_layers.clear();
}

void set_toml_ranks(const Settings& t, Imported& in) {
  Layout& l = in.layout;
  set_titan_degrees(t, in);
  l.sequence_parallel = l.tensor > 1;
  const int64_t expert_tensor =
      t.number("parallelism.expert_tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.expert_tensor = expert_tensor == l.tensor ? 0 : expert_tensor;
  l.overlap_tensor = t.flag("parallelism.enable_async_tensor_parallel", false);
}

}  // namespace

Imported import_torchtitan_toml(const std::filesystem::path& file) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  const Json json = toml_value(read_file(file, kMostImportedBytes), budget);
  if (std::none_of(json.begin(), json.end(), [](const Json& value) { return value.is_object(); }))
    throw UserError(Problem{file.string(), "no [section]", "a torchtitan configuration in TOML", ""});
  const Settings t(json, file.string());
  Imported in;
  in.model = titan_model_named(t.text("model.name", "llama3"), t.text("model.flavor", ""), in);
  set_toml_ranks(t, in);
  Layout& l = in.layout;
  l.precision = titan_plain_precision(t);
  const Json* named = t.find("model.converters");
  const std::string converters = named == nullptr ? "" : json_text(*named);
  if (converters.find("float8") != std::string::npos) l.precision = Precision::fp8;
  if (converters.find("quantize.linear.mx") != std::string::npos) l.precision = Precision::mxfp8;
  set_titan_pipeline(in, titan_pipeline(t), t.at("parallelism.pipeline_parallel_degree"));
  set_toml_recompute(t, l);
  set_titan_sequences(t, in);
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
