// SPDX-License-Identifier: Apache-2.0

// Reads a recipe of NeMo AutoModel back.

#include "base/error.h"
#include "base/text.h"
#include "frameworks/asked.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/settings.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"
#include "models/hf_config.h"

namespace mpt::frameworks {
namespace {

void set_recipe_schedule(const Settings& recipe, Imported& in) {
  Layout& l = in.layout;
  if (l.pipeline == 1) return set_stages(in, {}, recipe.at("distributed.pp_size"));
  const std::string key = "distributed.pipeline.pp_schedule";
  l.schedule = schedule_of_torch("automodel", recipe.text(key, "1f1b"), recipe.at(key));
  if (recipe.has("distributed.pipeline.pp_schedule_csv"))
    in.notes.push_back("pp_schedule_csv is not read: the named schedule is taken");
  const std::string modules = "distributed.pipeline.module_fqns_per_model_part";
  // nemo_automodel/components/distributed/pipelining/functional.py:182, calculate_virtual_stages()
  const std::string layers = "distributed.pipeline.layers_per_stage";
  l.chunks = chunks_of_stages(
      in, in.model ? in.model->layers.count() : 0, recipe.number(layers, rule_of(&LayerRun::repeat), 0),
      recipe.text("distributed.pipeline.round_virtual_stages_to_pp_multiple", ""), recipe.at(layers));
  set_stages(in, layers_of_modules(recipe, modules), recipe.at(modules));
}

std::string recipe_model(const Settings& recipe) {
  const Json* config = recipe.find("model.config");
  if (config != nullptr && config->is_string()) return config->get<std::string>();
  return recipe.text("model.config.pretrained_model_name_or_path",
                     recipe.text("model.pretrained_model_name_or_path", ""));
}

void set_recipe_replicas(const Settings& recipe, Imported& in, const std::string& file) {
  Layout& l = in.layout;
  const std::string strategy = recipe.text("distributed.strategy", "fsdp2");
  const int64_t data = recipe.number("distributed.dp_size", rule_of(&Layout::data), 0);
  const int64_t replicate = recipe.number("distributed.dp_replicate_size", rule_of(&Layout::data), 1);
  // Layers reshard in pipelines, too: the test for "pp" reads a mesh without that axis
  // (nemo_automodel/components/distributed/parallelizer.py:306, model_parallelizer.py:228-241).
  const bool usual = l.expert == 1 || recipe.flag("distributed.moe.reshard_after_forward", false);
  const char* const key = "distributed.reshard_after_forward";
  const bool reshard = recipe.flag(key, usual);
  const Json* const said = recipe.find(key);
  if (l.pipeline > 1 && usual && (said == nullptr || said->is_null()))
    in.notes.push_back(fmt::format(
        "{} is not set: layers of pipelines reshard (ZeRO 3), against the documentation; false gives ZeRO 2",
        key));
  set_fsdp(in, {replicate, data / replicate, reshard}, file);
  in.shard_groups = replicate;
  if (strategy == "ddp") l.zero = 0;
  if (strategy != "ddp" && strategy != "fsdp2")
    in.notes.push_back(fmt::format("strategy {} is taken as fsdp2", strategy.substr(0, 40)));
}

// AutoModel reads these words as None (nemo_automodel/components/config/loader.py).
Json with_nulls(Json json) {
  if (json.is_structured()) {
    for (Json& part : json) part = with_nulls(std::move(part));
  } else if (json == "none" || json == "None") {
    return nullptr;
  }
  return json;
}

// Other keys of an object with an id change the configuration of that id.
void cut_layers(int64_t layers, Imported& in) {
  if (!in.model || layers == 0 || layers >= in.model->layers.count()) return;
  in.model->layers = LayerList::of(layers, [&, all = in.model->layers](int64_t l) { return all[l]; });
  in.model->hub_id.clear();
}

// The length of packed sequences has precedence; datasets have two names for theirs.
void set_recipe_sequence(const Settings& recipe, Imported& in) {
  const FieldRule rule = rule_of(&Workload::sequence);
  for (const char* key : {"packed_sequence.packed_sequence_size", "dataset.seq_len", "dataset.seq_length"}) {
    const Json* const value = recipe.find(key);
    if (value == nullptr || value->is_null() || *value == 0) continue;
    in.workload.sequence = recipe.number(key, rule, 2048);
    return;
  }
  in.workload.sequence = in.model ? std::min<int64_t>(2048, in.model->max_positions) : 2048;
  in.notes.push_back(in.length_note =
                         "the recipe has no length of sequences: 2048 tokens are taken without --seq");
}

// The training: adapters and optimizer. Settings without a counterpart become notes.

void set_adapters(const Settings& recipe, Imported& in) {
  in.layout.training.edit().adapter_rank = recipe.number("peft.dim", rule_of(&Training::adapter_rank), 8);
  std::vector<std::string> targets = recipe.texts("peft.target_modules");
  const std::vector<std::string> excluded = recipe.texts("peft.exclude_modules");
  const bool all = recipe.flag("peft.match_all_linear", false) || !excluded.empty();
  if (targets.empty() && !all) targets = {"*_proj"};
  set_adapter_targets(match_recipe(in, hugging_face_modules, all ? excluded : targets, all),
                      all ? excluded : targets,
                      recipe.at(all ? "peft.exclude_modules" : "peft.target_modules"), in);
  if (recipe.flag("quantization.load_in_4bit", false)) set_weights_in_4_bits(recipe, "quantization", in);
  if (recipe.flag("quantization.load_in_8bit", false))
    in.notes.emplace_back("quantization.load_in_8bit: frozen weights are priced in 16 bits");
}

// Weights, gradients and moments have one type: bf16 unless the recipe names another.
void set_recipe_states(const Settings& recipe, Imported& in) {
  const std::string key = recipe.has("model.dtype") ? "model.dtype" : "model.torch_dtype";
  std::string name = recipe.text(key, "auto");
  name = name.substr(name.rfind('.') + 1);
  if (recipe.flag("compile.enabled", false)) in.execution = {"elementwise=compiled"};
  const std::string loss = recipe.text("loss_fn._target_", "");
  if (loss.ends_with(".FusedLinearCrossEntropy")) in.execution.emplace_back("loss=chunked");
  if (loss.ends_with(".TEParallelCrossEntropy")) in.execution.emplace_back("loss=fused");
  if (name == "float32" || name == "fp32")
    in.execution.insert(in.execution.end(), {"weight_bytes=4", "gradient_bytes=4", "optimizer_bytes=8"});
  else if (name != "auto" && name != "bfloat16" && name != "bf16")
    refuse_input(recipe.at(key), fmt::format("\"{}\"", cut_text(name, 40)), "auto, bfloat16 or float32");
}

// transformer_engine/pytorch/optimizers/fused_adam.py: the low half of 32-bit weights, or whole ones, and
// moments of any type.
void set_fused_adam(const Settings& recipe, Imported& in) {
  const int64_t whole = recipe.flag("optimizer.store_param_remainders", false) ? 2 : 4;
  int64_t bytes = recipe.flag("optimizer.master_weights", false) ? whole : 0;
  for (const char* key : {"optimizer.exp_avg_dtype", "optimizer.exp_avg_sq_dtype"})
    bytes += recipe.text(key, "torch.float32").ends_with("float32") ? 4 : 2;
  in.execution.push_back(fmt::format("optimizer_bytes={}", bytes));
}

void set_recipe_training(const Settings& recipe, Imported& in) {
  if (recipe.has("teacher_model"))
    in.notes.emplace_back("teacher_model: weights and forward of the teacher are not in a plan");
  if (recipe.has("model.backend.te_fp8"))
    in.notes.emplace_back(
        "model.backend.te_fp8: products of Transformer Engine in 8 bits are priced in bf16");
  const std::string optimizer = recipe.text("optimizer._target_", "torch.optim.AdamW");
  set_optimizer(in, optimizer.substr(optimizer.rfind('.') + 1));
  set_recipe_states(recipe, in);
  if (optimizer.ends_with(".FusedAdam")) set_fused_adam(recipe, in);
  if (recipe.has("peft")) set_adapters(recipe, in);
}

// Keys without a place in a plan become notes. Unknown keys may change time, memory or the model.
void sort_keys(const Settings& recipe, Imported& in) {
  note_left_out(recipe, "automodel", in);
  Asked known = *asked_of(framework_named("automodel", ""));
  const Json keys = parse_json(template_text("keys.json"), "frameworks/automodel/keys.json");
  for (const char* kind : {"section", "other"}) {
    for (const Json& key : keys.at(kind)) known.keys[kind].push_back(key);
    std::sort(known.keys[kind].begin(), known.keys[kind].end());
  }
  GivenSettings given;
  known.add_given(recipe.all(), "", recipe.file(), given);
  in.unknown = std::move(given.unknown);
}

// AutoModel's own rules. It compares words in small letters.
std::optional<Problem> recipe_refused(const Settings& recipe, const Imported& in, const std::string& file) {
  auto given = settings_by_path(recipe.all());
  for (auto& [path, value] : given)
    if (value && value->is_string()) value = lower_case(value->get<std::string>());
  if (in.model) given["experts"] = in.model->moe() == nullptr ? Json() : Json(in.model->moe()->experts);
  return asked_of(framework_named("automodel", ""))->refusal(given, true, file);
}

// "torch.float16" and "Float16" are one type, as nemo_automodel/shared/utils.py reads them.
Precision recipe_precision(const Settings& recipe) {
  if (recipe.flag("fp8.enabled", false)) return Precision::fp8;
  std::string type = lower_case(recipe.text("distributed.mp_policy.param_dtype", "bfloat16"));
  type = type.substr(type.rfind('.') + 1);
  return type == "float32" || type == "float"  ? Precision::fp32
         : type == "float16" || type == "half" ? Precision::fp16
                                               : Precision::bf16;
}

// nemo_automodel/recipes/_dist_utils.py, _normalize_activation_checkpointing()
Recompute recipe_recompute(const Settings& recipe) {
  static const std::vector<std::string> kFull{"true", "on", "full", "enabled", "yes"};
  const Json* const said = recipe.find("distributed.activation_checkpointing");
  const std::string word = said == nullptr     ? ""
                           : said->is_string() ? lower_case(said->get<std::string>())
                                               : json_text(*said);
  const bool full = contains(kFull, word) || recipe.flag("parallelizer.activation_checkpointing", false);
  return full ? Recompute::full : word == "selective" ? Recompute::selective : Recompute::none;
}

}  // namespace

Imported import_automodel(const std::filesystem::path& file) {
  const Settings recipe(with_nulls(read_yaml(file)), file.string());
  Imported in;
  Layout& l = in.layout;
  sort_keys(recipe, in);
  in.nodes = recipe.number("ci.nodes", between(1, 1e6), 0);
  l.tensor = recipe.number("distributed.tp_size", rule_of(&Layout::tensor), 1);
  l.context = recipe.number("distributed.cp_size", rule_of(&Layout::context), 1);
  l.pipeline = recipe.number("distributed.pp_size", rule_of(&Layout::pipeline), 1);
  l.expert = recipe.number("distributed.ep_size", rule_of(&Layout::expert), 1);
  set_whole_experts(l);
  l.sequence_parallel = l.tensor > 1 && recipe.flag("distributed.sequence_parallel", false);
  l.overlap_tensor = l.tensor > 1 && recipe.flag("distributed.enable_async_tensor_parallel", false);
  set_recipe_replicas(recipe, in, file.string());
  l.recompute = recipe_recompute(recipe);
  l.precision = recipe_precision(recipe);
  const char* const batch =
      l.pipeline > 1 ? "distributed.pipeline.pp_microbatch_size" : "step_scheduler.local_batch_size";
  l.micro_batch = recipe.number(batch, rule_of(&Layout::micro_batch), 1);
  in.workload.global_batch =
      recipe.number("step_scheduler.global_batch_size", rule_of(&Workload::global_batch), 32);
  const int64_t local = recipe.number("step_scheduler.local_batch_size", rule_of(&Layout::micro_batch), 1);
  if (l.pipeline > 1) run_pipeline_again(local / l.micro_batch, "step_scheduler.local_batch_size", in);
  const std::string reference = recipe_model(recipe);
  if (reference.empty() && recipe.has("model.config"))
    in.model = models::read_hugging_face(*recipe.find("model.config"), recipe.at("model.config")).model;
  else
    set_hugging_face_model(in, reference, file.parent_path());
  cut_layers(recipe.number("model.config.num_hidden_layers", rule_of(&LayerRun::repeat), 0), in);
  for (const char* key : {"model.num_nextn_predict_layers", "model.config.num_nextn_predict_layers"})
    if (in.model && recipe.has(key))
      in.model->next_token_layers = recipe.number(key, rule_of(&ModelSpec::next_token_layers), 0);
  in.refused = recipe_refused(recipe, in, file.string());
  set_recipe_sequence(recipe, in);
  set_recipe_schedule(recipe, in);
  set_recipe_training(recipe, in);
  // nemo_automodel/components/distributed/config.py:340
  const char* const defers = "distributed.defer_fsdp_grad_sync";
  if (l.zero >= 2 && l.pipeline == 1 && recipe.flag(defers, true)) defer_gradient_sums(defers, "false", in);
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
