// SPDX-License-Identifier: Apache-2.0
#include "frameworks/torchtitan/import.h"

#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "base/text.h"
#include "core/plan_request.h"
#include "frameworks/registry.h"
#include "frameworks/torchtitan/models.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

const std::map<std::string, std::string>& titan_schedules() {
  static const std::map<std::string, std::string> names{{"1F1B", "1f1b"},
                                                        {"GPipe", "gpipe"},
                                                        {"Interleaved1F1B", "interleaved"},
                                                        {"ZBVZeroBubble", "zb-v"},
                                                        {"DualPipeV", "dualpipe-v"}};
  return names;
}

[[noreturn]] void refuse_stages(const std::string& where, const std::string& what) {
  throw FrameworkRefusal(
      Problem{where, what, "stages that torchtitan builds",
              "other pipeline_parallel_layers_per_stage, or less layers in its first and last stage"});
}

// torchtitan/distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part: embedding and head count as
// layers, the first stages take what is over.
std::vector<int64_t> default_stages(int64_t layers, int64_t stages, const TitanPipeline& p,
                                    const std::string& where) {
  const int64_t all = layers + p.less_first + p.less_last;
  const int64_t each = all / stages;
  if (each == 0 || p.less_first > each || p.less_last > each)
    refuse_stages(where, fmt::format("{} stages for {} layers", stages, layers));
  std::vector<int64_t> result;
  int64_t left = layers;
  for (int64_t s = 0; s < stages; ++s) {
    int64_t here = each + (s < all % stages ? 1 : 0);
    if (s == 0) here -= p.less_first;
    if (s == stages - 1) here -= p.less_last;
    result.push_back(std::min(here, left));
    left -= result.back();
  }
  return result;
}

}  // namespace

std::optional<ModelSpec> titan_model_named(const std::string& name, const std::string& flavor, Imported& in) {
  for (const TitanModel& model : titan_models()) {
    if (name != model.name || flavor != model.flavor) continue;
    Json sizes = to_json(models::load_model(model.zoo));
    if (!model.changes.is_null()) sizes.merge_patch(model.changes);
    auto known = from_json<ModelSpec>(sizes, "frameworks/torchtitan/models.json");
    if (known.next_token_layers > 0) in.notes.push_back("torchtitan's model has no next-token layers");
    known.next_token_layers = 0;
    if (model.sees) in.notes.push_back("the encoder of pictures is not in the plan");
    return known;
  }
  in.unknown_model = fmt::format("{} {} of torchtitan", cut_text(name, 40), cut_text(flavor, 40));
  return std::nullopt;
}

int64_t number_or_open(const Settings& config, const std::string& key, const FieldRule& rule) {
  const Json* value = config.find(key);
  return value == nullptr || *value == -1 ? 0 : config.number(key, rule, 0);
}

void set_titan_degrees(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  l.tensor = config.number("parallelism.tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.context = config.number("parallelism.context_parallel_degree", rule_of(&Layout::context), 1);
  l.pipeline = config.number("parallelism.pipeline_parallel_degree", rule_of(&Layout::pipeline), 1);
  l.expert = config.number("parallelism.expert_parallel_degree", rule_of(&Layout::expert), 1);
  const char* const key = "parallelism.data_parallel_shard_degree";
  const int64_t shard = number_or_open(config, key, rule_of(&Layout::shard));
  const std::string reshard = config.text("parallelism.fsdp_reshard_after_forward", "default");
  // Its default keeps weights whole between the micro-batches of a pipeline.
  const bool keeps = reshard == "never" || (reshard == "default" && l.pipeline > 1);
  const int64_t replicate =
      config.number("parallelism.data_parallel_replicate_degree", rule_of(&Layout::data), 1);
  set_fsdp(in, {replicate, shard, !keeps}, config.at(key));
  if (config.flag("debug.moe_force_load_balance", false)) in.execution.emplace_back("balanced_experts=true");
  if (config.flag("debug.deterministic", false))
    in.notes.emplace_back("debug.deterministic: what it costs is not known, and not in the plan");
}

Precision titan_plain_precision(const Settings& config) {
  if (const std::string type = config.text("training.dtype", "float32"); type != "float32")
    throw UserError(Problem{config.at("training.dtype"), fmt::format("\"{}\"", cut_text(type, 40)),
                            "float32, whose bytes a plan for torchtitan has", ""});
  return config.text("training.mixed_precision_param", "bfloat16") == "float32" ? Precision::fp32
                                                                                : Precision::bf16;
}

void set_titan_sequences(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  const int64_t local = config.number("training.local_batch_size", rule_of(&Layout::micro_batch), 8);
  l.micro_batch = l.pipeline > 1 ? config.number("parallelism.pipeline_parallel_microbatch_size",
                                                 rule_of(&Layout::micro_batch), 1)
                                 : local;
  in.workload.sequence = config.number("training.seq_len", rule_of(&Workload::sequence), 2048);
  in.workload.global_batch =
      number_or_open(config, "training.global_batch_size", between(1, double(kMostSequences)));
  if (in.workload.global_batch == 0) in.workload.global_batch = local * l.data;
}

TitanPipeline titan_pipeline(const Settings& config) {
  TitanPipeline pipeline;
  pipeline.schedule = config.text("parallelism.pipeline_parallel_schedule", "1F1B");
  const Json* csv = config.find("parallelism.pipeline_parallel_schedule_csv");
  pipeline.has_csv = csv != nullptr && *csv != "";
  pipeline.layers = layers_of_modules(config, "parallelism.module_fqns_per_model_part");
  const FieldRule& layers = rule_of(&LayerRun::repeat);
  pipeline.layers_per_stage = config.number("parallelism.pipeline_parallel_layers_per_stage", layers, 0);
  pipeline.less_first =
      config.number("parallelism.pipeline_parallel_first_stage_less_layers", between(0, 100000), 1);
  pipeline.less_last =
      config.number("parallelism.pipeline_parallel_last_stage_less_layers", between(0, 100000), 1);
  return pipeline;
}

void set_titan_pipeline(Imported& in, const TitanPipeline& pipeline, const std::string& where) {
  Layout& l = in.layout;
  if (l.pipeline == 1) return set_stages(in, {}, where);
  const auto found = titan_schedules().find(pipeline.schedule);
  l.schedule = found == titan_schedules().end() ? "interleaved" : found->second;
  if (found == titan_schedules().end())
    in.notes.push_back(
        fmt::format("schedule {} is taken as interleaved 1F1B", cut_text(pipeline.schedule, 40)));
  if (pipeline.has_csv)
    in.notes.push_back("pipeline_parallel_schedule_csv is not read: the named schedule is taken");
  const int64_t layers = in.model ? in.model->layers.count() + pipeline.less_first + pipeline.less_last : 0;
  l.chunks = chunks_of_stages(in, layers, pipeline.layers_per_stage, "", where);
  if (in.model) check_stages(l, *in.model, where);
  const bool named = !pipeline.layers.empty();
  if (!named && !in.model) return;
  set_stages(in,
             named ? pipeline.layers : default_stages(in.model->layers.count(), l.stages(), pipeline, where),
             where);
}

Imported import_torchtitan(const std::filesystem::path& file) {
  return file.extension() == ".py" ? import_torchtitan_python(file) : import_torchtitan_toml(file);
}

Imported import_torchtitan_configuration(const std::filesystem::path& file, const std::string& function) {
  if (file.extension() == ".py") return import_torchtitan_python(file, function);
  throw UserError(Problem{file.string(), fmt::format("no configuration \"{}\"", cut_text(function, 40)),
                          "a file of Python with functions that return configurations", ""});
}

}  // namespace mpt::frameworks
