// SPDX-License-Identifier: Apache-2.0

// A function that returns a Trainer.Config, torchtitan's form since 0.3: the last such function of a file.

#include <array>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "core/plan_request.h"
#include "core/schedule_catalog.h"
#include "frameworks/asked.h"
#include "frameworks/framework.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/readers/settings.h"
#include "frameworks/registry.h"
#include "frameworks/torchtitan/models.h"
#include "models/zoo.h"

namespace mpt::frameworks {
namespace {

struct TitanPipeline {
  std::string schedule = "1F1B";  // PyTorch's name
  bool has_csv = false;           // a CSV file that is not read, or not known
  std::vector<int64_t> layers;    // of module_fqns_per_model_part; empty: not given
  int64_t layers_per_stage = 0;   // 0: not given
  int64_t less_first = 1, less_last = 1;
};

[[noreturn]] void refuse_stages(const std::string& where, const std::string& what) {
  throw FrameworkRefusal(
      where, what, "stages that torchtitan builds",
      "other pipeline_parallel_layers_per_stage, or less layers in its first and last stage");
}

// torchtitan/distributed/pipeline_parallel.py, _generate_llm_fqn_per_model_part: embedding and head count as
// layers. The first stages get one layer more if the division leaves a remainder.
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

// Nothing if the model is not known; `in` then has its name.
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

// A number; 0 for -1, which leaves it open.
int64_t number_or_open(const Settings& config, const std::string& key, const FieldRule& rule) {
  const Json* value = config.find(key);
  return value == nullptr || *value == -1 ? 0 : config.number(key, rule, 0);
}

// Degrees of tensor, context, pipeline, expert and data parallelism, with a note on a file that asks for
// deterministic kernels.
void set_titan_degrees(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  l.tensor = config.number("parallelism.tensor_parallel_degree", rule_of(&Layout::tensor), 1);
  l.context = config.number("parallelism.context_parallel_degree", rule_of(&Layout::context), 1);
  l.pipeline = config.number("parallelism.pipeline_parallel_degree", rule_of(&Layout::pipeline), 1);
  l.expert = config.number("parallelism.expert_parallel_degree", rule_of(&Layout::expert), 1);
  const char* const key = "parallelism.data_parallel_shard_degree";
  const int64_t shard = number_or_open(config, key, rule_of(&Layout::shard));
  const std::string reshard = config.text("parallelism.fsdp_reshard_after_forward", "default");
  // By default weights stay whole between the micro-batches of a pipeline.
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
    refuse_input(config.at("training.dtype"), fmt::format("\"{}\"", cut_text(type, 40)),
                 "float32, whose bytes a plan for torchtitan has");
  return config.text("training.mixed_precision_param", "bfloat16") == "float32" ? Precision::fp32
                                                                                : Precision::bf16;
}

// For files that count sequences of a rank. Without a global batch each rank takes its local batch once.
void set_titan_sequences(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  const int64_t local = config.number("training.local_batch_size", rule_of(&Layout::micro_batch), 8);
  l.micro_batch = l.pipeline > 1 ? config.number("parallelism.pipeline_parallel_microbatch_size",
                                                 rule_of(&Layout::micro_batch), 1)
                                 : local;
  in.workload.sequence = config.number("training.seq_len", rule_of(&Workload::sequence), 2048);
  in.workload.global_batch =
      number_or_open(config, "training.global_batch_size", between(1, double(kMostSequences)));
  in.accumulated = local / l.micro_batch;
  if (l.pipeline > 1 && in.workload.global_batch > 0)
    run_pipeline_again(in.accumulated, "training.local_batch_size", in);
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

// Sets schedule, chunks and stages of a layout with known pipeline degree. Without a list of modules the
// stages follow torchtitan's rule.
void set_titan_pipeline(Imported& in, const TitanPipeline& pipeline, const Settings& config) {
  const std::string where = config.at("parallelism.pipeline_parallel_degree");
  Layout& l = in.layout;
  if (l.pipeline == 1) return set_stages(in, {}, where);
  try {
    l.schedule = schedule_of_torch("torchtitan", pipeline.schedule,
                                   config.at("parallelism.pipeline_parallel_schedule"));
  } catch (const NotJudged&) {
    if (in.refused) throw FrameworkRefusal(*in.refused);
    throw;
  }
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

// A function that declares it but returns another file's object is refused by name when it is read.
bool returns_configuration(const PythonFunction& function) {
  const bool is_configuration = function.result.is_object() && function.result.contains("model_spec");
  return is_configuration || function.returns.ends_with("Trainer.Config");
}

// In exported files: the function that makes the model of MODEL, with the given converters.
constexpr const char* kBuildModel = "build_model";

// Whether a setting may change the model, its layout, memory or time.
bool matters(const std::string& argument) {
  static constexpr std::array kOthers = {"dataloader", "dataset", "validator", "metrics", "profiler",
                                         "loss",       "loss_fn", "lr",        "steps"};
  return !contains(kOthers, argument);
}

// The last one if there is no name.
const PythonFunction& configuration_of(const PythonFile& python, const std::string& name,
                                       const std::string& file) {
  const auto found =
      std::find_if(python.functions.rbegin(), python.functions.rend(), [&](const PythonFunction& function) {
        return returns_configuration(function) && (name.empty() || function.name == name);
      });
  if (found != python.functions.rend()) return *found;
  if (name.empty())
    refuse_input(file, "no function that returns a configuration with a model_spec",
                 "a torchtitan configuration in Python");
  const auto names = mapped_if<std::string>(python.functions, returns_configuration, &PythonFunction::name);
  refuse_input(file, fmt::format("no configuration \"{}\"{}", cut_text(name, 60), did_you_mean(name, names)),
               one_of(names));
}

// "torchtitan.models.llama3" gives llama3; in torchtitan's own folders the file's folder does.
std::string family_of(const PythonFile& python, const std::string& function,
                      const std::filesystem::path& file) {
  const std::string module = copy_of(python.imports, function).value_or(".");
  return module == "." ? file.parent_path().filename().string() : module.substr(module.rfind('.') + 1);
}

std::string flavor_of(const Settings& config) {
  const Json* const spec = config.find("model_spec");
  const Json first = spec == nullptr ? Json() : first_argument(*spec);
  return first.is_string() ? first.get<std::string>() : config.text("model_spec.flavor", "");
}

std::optional<ModelSpec> model_of_python(const PythonFile& python, const Settings& config,
                                         const std::string& family, const std::filesystem::path& file,
                                         Imported& in) {
  const std::string function = config.text(fmt::format("model_spec.{}", kCallKey), "");
  if (function == kBuildModel && python.values.contains("MODEL")) {
    Json sizes = python.values["MODEL"];
    sizes["name"] = "imported";
    return from_json<ModelSpec>(sizes, file.string() + " at MODEL");
  }
  auto model = titan_model_named(family, flavor_of(config), in);
  const auto layers = config.number("model_spec.num_mtp_layers", rule_of(&ModelSpec::next_token_layers), 0);
  if (model) model->next_token_layers = layers;
  return model;
}

Precision titan_precision(const Settings& config, bool& fp8_head) {
  const Json* converters = config.find("model_spec.converters");
  const Precision plain = titan_plain_precision(config);
  if (converters == nullptr || !converters->is_array()) return plain;
  for (const Json& converter : *converters) {
    const std::string text = json_text(converter);
    if (text.find("LoRA") != std::string::npos)
      refuse_input(config.at("model_spec.converters"), "LoRA", "a training of all weights",
                   "plans are for those");
    const bool names_head = text.find("lm_head") != std::string::npos;
    fp8_head = text.find("Float8") != std::string::npos ? !names_head : names_head;
    if (text.find("Float8Linear") != std::string::npos) return Precision::fp8;
    if (text.find("MXFP8Linear") != std::string::npos) return Precision::mxfp8;
    if (text.find("NVFP4Linear") != std::string::npos) return Precision::nvfp4;
  }
  return plain;
}

void set_titan_ranks(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  set_titan_degrees(config, in);
  l.sequence_parallel = l.tensor > 1 && config.flag("parallelism.enable_sequence_parallel", true);
  set_whole_experts(l);
  l.overlap_tensor = l.sequence_parallel && config.flag("compile.enable_async_tensor_parallel", false);
  l.offload_optimizer = config.flag("training.enable_cpu_offload", false);
}

// Exported files have the name of the schedule in their CSV file.
std::string schedule_of_csv(const PythonFile& python) {
  const auto found = python.values.find("SCHEDULE");
  if (found == python.values.end() || !found->is_string()) return "";
  const auto name = found->get<std::string>();
  return contains(schedule_names(), name) ? name : "";
}

// torchtitan 0.3 counts sequences of a rank, later ones tokens of a micro-batch.
bool counts_tokens(const Settings& config) {
  return config.has("training.max_context_length") ||
         config.has("training.num_tokens_per_microbatch_per_dp_rank");
}

void set_titan_batch(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  const FieldRule any = between(1, double(kMostSequences));
  if (!counts_tokens(config)) return set_titan_sequences(config, in);
  in.workload.sequence = config.number("training.max_context_length", rule_of(&Workload::sequence), 2048);
  const int64_t tokens = config.number("training.num_tokens_per_microbatch_per_dp_rank", any, 16384);
  const int64_t step = number_or_open(config, "training.num_tokens_per_train_step", any);
  const int64_t rounds =
      l.pipeline > 1 ? config.number("parallelism.num_pp_microbatches", rule_of(&Workload::global_batch), 1)
                     : 1;
  l.micro_batch = std::max<int64_t>(1, tokens / in.workload.sequence);
  in.workload.global_batch = step > 0 ? std::max<int64_t>(1, step / in.workload.sequence)
                                      : std::min(l.micro_batch * rounds * l.data, kMostSequences);
}

void set_titan_recompute(const Settings& config, Imported& in) {
  const std::string policy = config.text(std::string("activation_checkpoint.") + kCallKey, "None");
  in.layout.recompute = policy == "None"            ? Recompute::none
                        : policy == "FullAC.Config" ? Recompute::full
                                                    : Recompute::selective;
  if (in.layout.recompute == Recompute::selective && policy != "SelectiveAC.Config")
    in.notes.push_back(fmt::format("{}: taken as SelectiveAC", cut_text(policy, 40)));
}

// Layers and loss are compiled only where a file asks for it (torchtitan/config/configs.py, CompileConfig).
void set_titan_kernels(const Settings& config, Imported& in) {
  const Json* const parts = config.find("compile.components");
  const auto compiles = [&](const char* part) {
    return config.flag("compile.enable", false) &&
           (parts == nullptr || !parts->is_array() || contains(*parts, Json(part)));
  };
  if (!compiles("model")) in.execution.emplace_back("elementwise=eager");
  const std::string loss = config.text(fmt::format("loss.{}", kCallKey), "");
  if (!loss.empty() && !loss.starts_with("ChunkedLossWrapper"))
    in.execution.emplace_back(compiles("loss") ? "loss=fused" : "loss=fp32");
}

// torchtitan's own reason to refuse the sections of a configuration. Throws FrameworkRefusal for fields that
// its classes do not have, and for values out of a field's range.
std::optional<Problem> sections_refused(const PythonFunction& function, const Settings& config,
                                        const std::string& family, const Imported& in,
                                        const std::string& file) {
  const Asked& asked = *asked_of(framework_named("torchtitan", ""));
  std::map<std::string, std::optional<Json>> given = settings_by_path(config.all());
  given["family"] = family;
  if (in.model) given["experts"] = in.model->moe() == nullptr ? Json() : Json(in.model->moe()->experts);
  const bool plain = config.text(kCallKey, "") == "Trainer.Config";
  for (const auto& [name, value] : config.all().items())
    if (plain && name != kCallKey) asked.value_of(name, {}, config.at(name));
  for (const char* section : {"training", "parallelism", "compile", "comm", "debug"}) {
    const Json* fields = config.find(section);
    if (fields == nullptr) continue;
    if (!fields->is_object() || !fields->contains(kCallKey)) return std::nullopt;  // made elsewhere
    for (const auto& [field, value] : fields->items()) {
      const std::string key = fmt::format("{}.{}", section, field);
      if (field == kCallKey || field == kArgumentsKey) continue;
      std::vector<std::string> words;
      if (value.is_string() && asked.choices.contains(key)) words.push_back(value.get<std::string>());
      asked.value_of(key, words, config.at(key));
    }
  }
  const bool all_read = !any_of(function.unread, [](const auto& unread) { return matters(unread.argument); });
  return all_read ? asked.refusal(given, true, file) : std::nullopt;
}

}  // namespace

std::vector<std::string> torchtitan_configurations(const std::filesystem::path& file) {
  return mapped_if<std::string>(read_python(file).functions, returns_configuration, &PythonFunction::name);
}

Imported import_torchtitan(const std::filesystem::path& file) {
  return import_torchtitan_configuration(file, "");
}

Imported import_torchtitan_configuration(const std::filesystem::path& file, const std::string& name) {
  if (file.extension() == ".toml")
    refuse_input(file.string(), "TOML, which torchtitan read until version 0.2",
                 "a Python file with functions that return configurations, as 0.3 has them",
                 "give the same degrees to mpt-plan estimate --framework torchtitan");
  const PythonFile python = read_python(file, "", nullptr, kBuildModel);
  const PythonFunction& function = configuration_of(python, name, file.string());
  if (!function.result.is_object() || !function.result.contains("model_spec")) {
    const std::string maker = function.result.is_object() ? function.result.value(kCallKey, "") : "";
    refuse_input(
        fmt::format("{} at {}", file.string(), function.name),
        maker.empty() ? "a result that is not understood" : fmt::format("made by {}()", cut_text(maker, 60)),
        "a Trainer.Config with its model_spec", "write the values out in a function of one file");
  }
  const Settings config(function.result, file.string());
  Imported in;
  for (const PythonUnread& unread : function.unread)
    if (matters(unread.argument)) in.notes.push_back(unread.text + " was not understood");
  const std::string family = family_of(python, config.text(fmt::format("model_spec.{}", kCallKey), ""), file);
  in.model = model_of_python(python, config, family, file, in);
  if (!counts_tokens(config)) in.refused = sections_refused(function, config, family, in, file.string());
  set_titan_ranks(config, in);
  bool fp8_head = false;
  in.layout.precision = titan_precision(config, fp8_head);
  set_titan_kernels(config, in);
  if (fp8_head && is_narrow(in.layout.precision)) in.execution.emplace_back("fp8_head=true");
  TitanPipeline pipeline = titan_pipeline(config);
  const std::string named = pipeline.has_csv && in.layout.pipeline > 1 ? schedule_of_csv(python) : "";
  if (!named.empty()) pipeline.has_csv = false;
  set_titan_pipeline(in, pipeline, config);
  if (!named.empty()) in.layout.schedule = named;
  set_titan_recompute(config, in);
  set_titan_batch(config, in);
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
