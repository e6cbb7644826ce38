// SPDX-License-Identifier: Apache-2.0

// Recipes of fine-tuners that train by Hugging Face's Trainer: TRL, LLaMA-Factory and axolotl. What each is
// written as stands in tuner_exports.json: rows of a condition, a key and a value, which may name a figure of
// the plan.

#include <set>

#include "base/json.h"
#include "base/ranges.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/classes.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {
namespace {

const Json& tuner(const std::string& name) {
  static const Json tools = parse_json(template_text("tuner_exports.json"), "tuner_exports.json");
  return tools.at(name);
}

// The modules with adapters as PEFT takes them: as much of their names' ends as tells them from others.
std::vector<std::string> adapted_modules(const Plan& plan) {
  ModelSpec model = plan.model;
  model.type = class_type(model, "transformers-fsdp");
  for (LayerRun& run : model.layers.runs) run.repeat = 1;
  std::vector<std::string> names, adapted, others;
  for (const auto& [module, target] : hugging_face_modules(model, false)) {
    const bool adapts = target && plan.layout.training->adapts(*target) && target != AdapterTarget::experts;
    (adapts ? adapted : others).push_back(module);
  }
  for (const std::string& module : adapted) {
    size_t dot = module.rfind('.');
    const auto ends_alike = [&](const std::string& other) { return other.ends_with(module.substr(dot)); };
    while (dot > 0 && any_of(others, ends_alike)) dot = module.rfind('.', dot - 1);
    if (!contains(names, module.substr(dot + 1))) names.push_back(module.substr(dot + 1));
  }
  return names;
}

// Of the plan, what a row's condition may ask for; with "!" before it, its contrary.
std::set<std::string> conditions_of(const Plan& plan, const std::string& by, const Json& trainer) {
  const Layout& l = plan.layout;
  std::set<std::string> all{"", enum_name(l.precision), enum_name(l.training->optimizer),
                            by.substr(by.find('-') + 1), plan.model.type};
  all.insert(fmt::format("zero_{}", l.zero));
  const std::pair<bool, const char*> rest[] = {
      {l.training->adapts(), "lora"},
      {moves_adapters(framework_named(by, "export"), plan.model, l.training), "moved"},
      {l.training->adapts() && !l.training->freezes(FrozenPart::embedding), "whole_embedding"},
      {l.training->adapts() && !l.training->freezes(FrozenPart::head), "whole_head"},
      {l.training->frozen_format == FrozenFormat::nf4, "nf4"},
      {l.training->frozen_format == FrozenFormat::int8, "int8"},
      {trainer.value("activation_checkpointing", false), "checkpointing"},
      {recomputes_partly(l), "every_nth"},
      {l.execution->states.weight_bytes == 2, "narrow"},
      {l.execution->kernels.loss == LossKernel::chunked, "chunked"},
      {l.training->packed_length > 0.0, "packed"},
      {l.execution->kernels.attention == AttentionKernel::flash2 && l.precision != Precision::fp32, "flash"},
      {l.execution->kernels.attention == AttentionKernel::plain, "plain"},
      {plan.model.moe() != nullptr, "experts"},
      {plan.model.moe() != nullptr && plan.model.moe()->balance_loss > 0.0, "balanced"},
      {l.execution->states.narrows_experts, "narrow_experts"},
      {l.context > 1, "context"},
      {sharing_data_ranks(l) < l.data && l.zero > 0, "shard_groups"},
      {l.ranks() > 1, "ranks"},
      {micro_batches(l, plan.workload) > 1, "accumulates"}};
  for (const auto& [holds, name] : rest)
    if (holds) all.insert(name);
  return all;
}

// Sizes alone do not do: the weights come from the hub, or from the folder of the recipe.
std::string weights_of(const Plan& plan, const Json& trainer) {
  const std::string id = hub_id(plan.model), named = trainer.at("config_name");
  return named != "config.json" ? named : id.empty() ? "." : id;
}

std::map<std::string, Json> values_of(const Plan& plan, const Json& trainer) {
  const Layout& l = plan.layout;
  const int64_t shard = sharing_data_ranks(l);
  const std::vector<std::string> modules = adapted_modules(plan);
  const auto layers = class_names("wrapped", framework_named("transformers-fsdp", "export"), plan.model);
  std::map<std::string, Json> values{
      {"@model", weights_of(plan, trainer)},
      {"@sequence", plan.workload.sequence},
      {"@micro_batch", l.micro_batch},
      {"@accumulated", micro_batches(l, plan.workload)},
      {"@rank", l.training->adapter_rank},
      {"@alpha", 2 * l.training->adapter_rank},
      {"@modules", modules},
      {"@modules_text", joined(modules, ",")},
      {"@patterns", modules.size() == 1 ? Json::array({".*\\." + modules.front()}) : Json(modules)},
      {"@reshards", l.zero == 3},
      {"@offload", l.offload_optimizer},
      {"@context", l.context},
      {"@twice_context", 2 * l.context},
      {"@shard", shard},
      {"@replicas", l.data / shard},
      {"@layers", layers.empty() ? Json() : Json(layers.front())},
      {"@wraps", l.recompute == Recompute::full && !recomputes_partly(l)}};
  if (recomputes_partly(l))
    values["@every"] = trainer.at("activation_checkpointing_kwargs").at("every_n_layers");
  return values;
}

Json filled_in(const Json& value, const std::map<std::string, Json>& values) {
  if (value.is_string() && value.get_ref<const std::string&>().starts_with('@'))
    return values.at(value.get<std::string>());
  if (!value.is_object()) return value;
  Json all = Json::object();
  for (const auto& [key, inner] : value.items())
    if (Json known = filled_in(inner, values); !known.is_null()) all[key] = std::move(known);
  return all;
}

// The second parts of a table's rows that hold, of which the first is a condition.
std::vector<std::string> sentences(const Json& tool, const char* table,
                                   const std::set<std::string>& conditions) {
  std::vector<std::string> all;
  for (const Json& row : tool.value(table, Json::array()))
    if (conditions_hold(row.at(0), conditions)) all.push_back(row.at(1));
  return all;
}

Exported export_tuner(const Plan& plan, const std::string& name) {
  const Json& tool = tuner(name);
  const std::string& planned = plan.layout.execution->framework;
  const std::string framework = tuners_take(planned) ? planned : "transformers-fsdp";  // by --force
  const Exported base = find_if(framework_code(), [&](const FrameworkCode& code) {
                          return code.framework == framework;
                        })->write(plan);
  Exported exported{{}, base.warnings, base.needs};
  Json arguments;
  for (const ExportedFile& file : base.files) {
    if (file.name == "train.json") arguments = parse_json(file.text, file.name);
    if ((file.name == "config.json" && hub_id(plan.model).empty()) || file.name == "deepspeed.json" ||
        (file.name == "accelerate.yaml" && tool.at("accelerate") == true))
      exported.files.push_back(file);
  }
  const std::set<std::string> conditions = conditions_of(plan, framework, arguments);
  const std::map<std::string, Json> values = values_of(plan, arguments);
  auto text = fmt::format("# {}. For {}.\n", export_title(plan), tool.at("release").get<std::string>());
  for (const std::string& note : sentences(tool, "notes", conditions)) text += "# " + note + ".\n";
  for (const Json& row : tool.at("rows"))
    if (conditions_hold(row.at(0), conditions))
      text += yaml_text(Json{{row.at(1), filled_in(row.at(2), values)}});
  text += "\n# What no plan holds: data, steps, rates.\n" + yaml_text(tool.at("data"));
  exported.files.push_back({tool.at("file"), text});
  const std::string command = sentences(tool, "start", conditions).front();
  exported.files.push_back(
      {fmt::format("run_{}.sh", name), filled("run_tuner.sh", plan, {{"command", command}}), true});
  for (std::string& lack : sentences(tool, "lacks", conditions)) exported.warnings.push_back(std::move(lack));
  for (std::string& need : sentences(tool, "needs", conditions)) exported.needs.push_back(std::move(need));
  if (values.at("@model") != arguments.at("config_name") && contains(conditions, "balanced"))
    exported.needs.emplace_back(
        "output_router_logits: true in the model's own config.json, for its balance loss");
  if (values.at("@model") == ".") exported.needs.emplace_back("the model's weights beside config.json");
  return exported;
}

}  // namespace

std::string tuner_lacks(const std::string& name, const Plan& plan) {
  const auto conditions = conditions_of(plan, plan.layout.execution->framework, Json::object());
  const std::vector<std::string> lacks = sentences(tuner(name), "lacks", conditions);
  return lacks.empty() ? "" : lacks.front();
}

Exported export_trl(const Plan& plan) { return export_tuner(plan, "trl"); }
Exported export_llamafactory(const Plan& plan) { return export_tuner(plan, "llamafactory"); }
Exported export_axolotl(const Plan& plan) { return export_tuner(plan, "axolotl"); }

bool tuners_take(const std::string& framework) { return contains(tuner("frameworks"), Json(framework)); }

bool tuners_write(const std::string& framework, TrainingFeature feature) {
  return tuners_take(framework) && contains(tuner("writes"), Json(enum_name(feature)));
}

}  // namespace mpt::frameworks
