// SPDX-License-Identifier: Apache-2.0

// Reads the constants of an exported mpt_train.py back.

#include "frameworks/import.h"
#include "base/error.h"
#include "base/text.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/settings.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

std::vector<int64_t> whole_numbers(const Settings& settings, const std::string& key, double most) {
  std::vector<int64_t> numbers;
  const Json* list = settings.find(key);
  if (list == nullptr || !list->is_array())
    refuse_input(settings.at(key), "no list of numbers", "a file of mpt-plan export --to pytorch");
  for (const Json& value : *list) {
    if (!value.is_number_integer() || value.get<double>() < 0 || value.get<double>() > most)
      refuse_input(settings.at(key), json_text(value), fmt::format("whole numbers from 0 to {}", most));
    numbers.push_back(value.get<int64_t>());
  }
  return numbers;
}

template <class E>
E choice(const Settings& settings, const std::string& key, E otherwise) {
  const std::string text = settings.text(key, enum_name(otherwise));
  if (const auto value = enum_value<E>(text)) return *value;
  refuse_input(settings.at(key), fmt::format("\"{}\"", cut_text(text, 40)), one_of(enum_names<E>()));
}

// The file has the whole model except its name.
ModelSpec model_of(const Settings& settings) {
  const Json* model = settings.find("MODEL");
  if (model == nullptr || !model->is_object())
    refuse_input(settings.at("MODEL"), "no model", "a file of mpt-plan export --to pytorch");
  Json named = *model;
  named["name"] = "imported";
  ModelSpec spec = from_json<ModelSpec>(named, settings.at("MODEL"));
  validate_model(spec, settings.at("MODEL"));
  return spec;
}

// Degrees by the names of the mesh's axes.
Json mesh_degrees(const Settings& settings) {
  const std::vector<int64_t> sizes = whole_numbers(settings, "MESH", double(kMostRanks));
  const Json* names = settings.find("AXES");
  Json degrees = Json::object();
  for (size_t i = 0; names != nullptr && names->is_array() && i < std::min(names->size(), sizes.size());
       ++i) {
    if ((*names)[i].is_string()) degrees[(*names)[i].get<std::string>()] = sizes[i];
  }
  return degrees;
}

void set_mesh_stages(const Settings& settings, Layout& l) {
  const double most = rule_of(&LayerRun::repeat).maximum;
  l.layers_per_stage = whole_numbers(settings, "LAYERS", most);
  if (l.layers_per_stage.empty() || int64_t(l.layers_per_stage.size()) % l.pipeline != 0)
    refuse_input(settings.at("LAYERS"), fmt::format("{} stages", l.layers_per_stage.size()),
                 fmt::format("a multiple of {} pipeline ranks", l.pipeline));
  l.chunks = int64_t(l.layers_per_stage.size()) / l.pipeline;
  const std::vector<int64_t> recomputed = whole_numbers(settings, "RECOMPUTED", most);
  const bool none = all_of(recomputed, [](int64_t n) { return n == 0; });
  l.recompute = none ? Recompute::none : Recompute::full;
  if (!none && recomputed != l.layers_per_stage) l.recomputed_layers = recomputed;
}

}  // namespace

Imported import_pytorch(const std::filesystem::path& file) {
  const Settings settings(read_python(file).values, file.string());
  const Settings mesh(mesh_degrees(settings), file.string());
  Imported in;
  Layout& l = in.layout;
  l.pipeline = mesh.number("pp", rule_of(&Layout::pipeline), 1);
  l.context = mesh.number("cp", rule_of(&Layout::context), 1);
  l.tensor = mesh.number("tp", rule_of(&Layout::tensor), 1);
  set_fsdp(in,
           {mesh.number("dp_replicate", rule_of(&Layout::data), 1),
            mesh.number("dp_shard", rule_of(&Layout::data), 1), settings.flag("RESHARD_AFTER_FORWARD", true)},
           file.string());
  set_mesh_stages(settings, l);
  if (l.pipeline > 1) l.schedule = settings.text("SCHEDULE", "1f1b");
  l.precision = precision_named(settings.text("PRECISION", "bf16"), settings.at("PRECISION"));
  l.sequence_parallel = settings.flag("SEQUENCE_PARALLEL", false);
  l.context_method = choice(settings, "CONTEXT_METHOD", ContextMethod::ring);
  l.micro_batch = settings.number("MICRO_BATCH", rule_of(&Layout::micro_batch), 1);
  in.workload.sequence = settings.number("SEQUENCE", rule_of(&Workload::sequence), 2048);
  in.workload.global_batch = settings.number("GLOBAL_BATCH", rule_of(&Workload::global_batch), 0);
  in.model = model_of(settings);
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
