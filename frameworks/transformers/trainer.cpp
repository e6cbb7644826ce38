// SPDX-License-Identifier: Apache-2.0

// Fields of src/transformers/training_args.py, of ClusterConfig in src/accelerate/commands/config/
// config_args.py at v1.15.0, and options of src/accelerate/commands/launch.py.

#include "frameworks/transformers/trainer.h"

#include "frameworks/asked.h"
#include "frameworks/deepspeed/deepspeed.h"
#include "frameworks/framework.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/supports/supports.h"
#include "frameworks/transformers/classes.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {

Json trainer_arguments(const Plan& plan, const char* framework, Exported& exported) {
  const Layout& l = plan.layout;
  Json arguments{
      {"config_name", add_hugging_face_model(plan.model, framework, exported, BalanceLoss::trained)},
      {"block_size", plan.workload.sequence},
      {"per_device_train_batch_size", l.micro_batch},
      {"gradient_accumulation_steps", micro_batches(l, plan.workload)}};
  // All layers of FSDP recompute by accelerate's switch.
  if (recomputes_partly(l))
    arguments["activation_checkpointing_kwargs"]["every_n_layers"] =
        l.layers_per_stage.front() - *level_of(PartialRecompute::every_nth, l) + 1;
  const bool shares_weights = l.execution->framework == "transformers-fsdp";
  arguments["activation_checkpointing"] =
      l.recompute == Recompute::full && (recomputes_partly(l) || !shares_weights);
  // In 8 bits neither: either word would come before accelerate's precision (training_args.py:1614).
  if (l.precision == Precision::bf16 || l.precision == Precision::fp16)
    arguments[enum_name(l.precision)] = true;
  // Without it, weights have the checkpoint's type, usually 16 bits. Gradients and moments then have it, too.
  const bool widens = l.precision != Precision::fp32 && l.execution->framework != "transformers-ddp";
  if (!widens && !l.training->adapts()) arguments["dtype"] = "float32";
  // FSDP shares weights out as DTensors, whose states bitsandbytes does not keep and torchao does.
  if (l.training->optimizer == OptimizerKind::adamw8)
    arguments["optim"] = shares_weights ? "adamw_torch_8bit" : "adamw_bnb_8bit";
  if (l.training->optimizer == OptimizerKind::adafactor) arguments["optim"] = "adafactor";
  return arguments;
}

Json accelerate_config(const Plan& plan, const char* kind) {
  const Layout& l = plan.layout;
  return Json{{"compute_environment", "LOCAL_MACHINE"},
              {"distributed_type", kind},
              {"mixed_precision", l.precision == Precision::fp32 ? "no" : enum_name(l.precision)},
              {"num_machines", node_count(plan)},
              {"num_processes", l.ranks()},
              {"machine_rank", 0},
              {"main_training_function", "main"},
              {"use_cpu", false}};
}

void add_accelerate_scripts(const Plan& plan, const std::string& settings, const std::string& options,
                            Exported& exported) {
  add_filled(plan, "run_accelerate.sh", {{"settings", settings}, {"options", options}}, exported);
  add_filled(plan, "mpt_trainer_trial.py", {}, exported);
}

namespace {

bool is_on(const Settings& s, const char* key) {
  const Json* const value = s.find(key);
  return value != nullptr && *value != false && *value != 0 && *value != "false" && *value != "none";
}

const Json& tuner_tool(const std::string& name) {
  return *find_if(tuner_table("tools"), [&](const Json& one) { return one["tool"] == name; });
}

// A recipe of LLaMA-Factory (hiyouga/LLaMA-Factory, src/llamafactory/hparams) or axolotl
// (axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas) under the Trainer's names. Null: of neither.
Json recipe_of_tuner(Json recipe) {
  const bool factory = recipe.contains("cutoff_len");
  if (!factory && !recipe.contains("sequence_len")) return nullptr;
  recipe = trainer_names(std::move(recipe), factory ? "LLaMA-Factory" : "axolotl");
  if (recipe.contains("fsdp") || recipe.contains("fsdp_config"))
    recipe["fsdp_config"] =
        fsdp_of_trainer(recipe.value("fsdp", Json()), recipe.value("fsdp_config", Json()));
  if (factory)
    recipe["gradient_checkpointing"] = recipe.value("disable_gradient_checkpointing", Json()) != true &&
                                       recipe.value("enable_activation_checkpointing", Json()) != false;
  return recipe;
}

// Applies the first of a key's rows for this value. A row may ask for another key that is on, for adapters
// or FSDP, or for the contrary with "!" before it.
bool set_priced(const Json& rows, const std::string& name, const Json& value, const Json& given,
                Imported& in) {
  const auto is_set = [&](const std::string& key) {
    const Json other = given.value(key, Json());
    if (key == "adapters" || given.value("adapter", Json()) == key) return in.layout.training->adapts();
    return key == "fsdp" ? in.framework == "transformers-fsdp" : !is_off(other) && other != 1;
  };
  for (const Json& row : rows.value(name, Json::array())) {
    const std::string with = row.value("with", "");
    const bool holds = with.starts_with('!') ? !is_set(with.substr(1)) : with.empty() || is_set(with);
    if (row.value("value", value) != value || !holds) continue;
    for (const Json& field : row.value("execution", Json::array())) in.execution.push_back(field);
    in.layout.micro_batch *= row.value("sequences", 1);
    in.workload.global_batch *= row.value("sequences", 1);
    if (row.value("headless", false) && in.model) in.model->tied_embeddings = true;
    if (row.value("keeps_all", false)) in.layout.recompute = Recompute::none;
    if (row.contains("optimizer")) set_optimizer(in, row["optimizer"]);
    if (row.contains("precision")) in.layout.precision = precision_named(row["precision"], name);
    if (row.contains("refused")) in.refused = Problem{name, row["refused"], row["expected"], ""};
    in.ranks = row.value("ranks", in.ranks);
    if (row.contains("note")) in.notes.push_back(row["note"]);
    return true;
  }
  return false;
}

// PEFT trains a copy of each whole module, so a table and a head that were one are two.
void train_whole_modules(const std::vector<std::string>& names, Imported& in) {
  if (names.empty()) return;
  std::vector<FrozenPart>& frozen = in.layout.training.edit().frozen;
  frozen = {FrozenPart::mixers, FrozenPart::mlps, FrozenPart::experts};
  if (!contains(names, std::string("embed_tokens"))) frozen.push_back(FrozenPart::embedding);
  if (!contains(names, std::string("lm_head"))) frozen.push_back(FrozenPart::head);
  if (in.model) in.model->tied_embeddings = false;
  if (names.size() + frozen.size() != 5) in.unknown.emplace_back("lora_modules_to_save");
}

// All layers, or those whose index n divides: transformers/modeling_utils.py, _set_gradient_checkpointing.
void set_recompute(const Settings& s, Imported& in) {
  // The older name goes with version 6 (transformers/training_args.py:302-316).
  for (const std::string name : {"gradient_checkpointing", "activation_checkpointing"}) {
    if (!is_on(s, name.c_str())) continue;
    in.layout.recompute = Recompute::full;
    const int64_t n = s.number(name + "_kwargs.every_n_layers", rule_of(&Layout::micro_batch), 1);
    if (n > 1 && in.model) {
      const int64_t layers = in.model->layers.count();
      in.layout.layers_per_stage = {layers};
      in.layout.recomputed_layers = {(layers + n - 1) / n};
    }
    if (!s.flag(name + "_kwargs.offload", false)) continue;
    in.execution.emplace_back("waits_on_host=true");
    in.notes.push_back(name + "_kwargs.offload: copies to the host are priced as free");
  }
}

// axolotl maps weights to the CPU of local rank 0 and to meta elsewhere; LLaMA-Factory leaves it to
// transformers 5, which reads them in each process.
void set_loading(const Settings& s, bool axolotl, bool narrow, Imported& in) {
  if (!axolotl || !is_on(s, "fsdp_config.fsdp_cpu_ram_efficient_loading"))
    return build_in_each_process(narrow ? 2 : 4, in);
  if (in.layout.training->frozen_format != FrozenFormat::bf16) in.execution.emplace_back("whole_at_start=0");
}

// PEFT takes the names of an MLP for those of its experts in older transformers, and drops other modules of
// these names (moved_adapters in classes.json). Of names that are no patterns the last part counts.
void move_adapters(const std::vector<std::string>& patterns, bool all, AdapterMatch& match, Imported& in) {
  const auto moved = class_names("moved_adapters", framework_named("transformers-fsdp", "PEFT"), *in.model);
  if (moved.empty()) return;
  const auto named = [&](const std::string& name) {
    return all || any_of(patterns, [&, last = "." + name](const std::string& pattern) {
             return pattern.ends_with(last) || matches_module(pattern, "model.layers.0.mlp.experts" + last);
           });
  };
  const bool gate = named(moved[0]), down = named(moved[2]);
  if (gate != named(moved[1]))
    in.refused = Problem{"lora_target_modules", fmt::format("one of {} and {}", moved[0], moved[1]),
                         "both: PEFT 0.21.2 refuses one, as experts have one weight of both", ""};
  for (auto* const targets : {&match.targets, &match.partly})
    std::erase_if(*targets, [](AdapterTarget t) { return t > AdapterTarget::output; });
  if (gate || down) match.targets.push_back(AdapterTarget::experts);
  if (gate != down) match.partly.push_back(AdapterTarget::experts);
  if (gate) in.layout.training.edit().expert_rank_factor = 2;
  if (named("gate")) in.notes.emplace_back("adapters on the router: not priced");
}

}  // namespace

bool is_off(const Json& v) { return v.empty() || v == false || v == 0 || v == "" || v == "false"; }

// transformers/training_args.py, _apply_legacy_fsdp_to_config: of names that each hold the one before, the
// last counts.
Json fsdp_of_trainer(const Json& words, const Json& given) {
  const std::string how = lower_case(words.dump());
  Json config{{"fsdp_offload_params", how.find("offload") != std::string::npos}};
  for (const std::string word : {"no_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2"})
    if (how.find(word) != std::string::npos)
      config["fsdp_reshard_after_forward"] = word == "shard_grad_op" ? Json(false) : Json(word);
  for (const auto& [key, value] : given.items()) {
    const std::string name = key == "cpu_offload" ? "offload_params" : key;
    config[name.starts_with("fsdp_") ? name : "fsdp_" + name] = value;
  }
  return config;
}

const Json& tuner_table(const char* name) {
  static const Json tables = parse_json(template_text("tuner_keys.json"), "tuner_keys.json");
  return tables.at(name);
}

Json trainer_names(Json recipe, const std::string& tool) {
  const Json& own = tuner_tool(tool);
  const Json& form = own.contains("newer") && recipe.contains("model") ? own["newer"] : own;
  const Settings given(recipe, "");
  for (const auto& [theirs, ours] : form["names"].items()) {
    const Json* const value = given.find(theirs);
    if (value != nullptr && (*value != false || !recipe.contains(ours)))
      recipe[ours.get<std::string>()] = *value;
  }
  for (const auto& [key, value] : form["defaults"].items())
    if (!recipe.contains(key) && (key != "bf16" || !recipe.contains("fp16"))) recipe[key] = value;
  return recipe;
}

void judge_keys(const Json& given, const std::string& tool, const std::string& section, Imported& in) {
  const auto takes = [](const Json& all, const Json& v) {
    return contains(all, v) ||
           (v.is_array() && !v.empty() && all_of(v, [&](const Json& one) { return contains(all, one); }));
  };
  const Json& own = tuner_tool(tool);
  std::vector<std::string> strange, packages;
  for (const Json& one : tuner_table("tools"))
    if (&one == &own || contains(own["inherits"], one["tool"]))
      packages.push_back(one.value("package", one["tool"]));
  for (const auto& [key, value] : given.items()) {
    const std::string name = section + (section.empty() || !key.starts_with("fsdp_") ? key : key.substr(5));
    std::string kind;  // empty, "read", or a heading of "changes"
    for (const Json& one : tuner_table("tools")) {
      if (&one != &own && !contains(own["inherits"], one["tool"])) continue;
      const bool listed = one["takes"].contains(name), taken = listed && takes(one["takes"][name], value);
      if (contains(one["read"], name) ||
          any_of(one["none"], [&](const Json& keys) { return contains(keys, name); }))
        kind = !listed || taken || is_off(value) ? "read" : "value";
      for (const auto& [what, keys] : one["changes"].items()) {
        if (!keys.contains(name)) continue;
        const bool same = value == keys[name] || taken || (!listed && is_off(value) && is_off(keys[name]));
        kind = same ? "read" : what;
      }
      // Rows of the Trainer do not hold for Megatron Core.
      const bool holds = kind != "read" && one.contains("sets") && (&one == &own || !own.contains("flags"));
      if (holds && set_priced(one["sets"], name, value, given, in)) kind = "read";
    }
    const bool kept = kind == "kept" && (in.layout.recompute == Recompute::full ||
                                         contains(in.execution, std::string("waits_on_host=true")));
    if (kind.empty() && !own.contains("closed") && section.empty())
      strange.emplace_back(cut_text(name, 60));
    else if (kept || kind == "time" || kind == "small")
      in.notes.push_back(fmt::format("{}: not priced", cut_text(name, 60)));
    else if (kind != "read" &&
             (section.empty() || !kind.empty() || contains(own.value("closed", Json::array()), section))) {
      in.unknown.push_back(name);
      if (kind == "memory" || kind == "kept")
        in.notes.push_back(fmt::format("{}: changes memory, and is not priced", cut_text(name, 60)));
    }
    if (value.is_object() && section.empty()) judge_keys(value, tool, name + ".", in);
  }
  if (!strange.empty())
    in.notes.push_back(fmt::format("{}: not known to {}", joined(strange, ", "), joined(packages, " or ")));
}

void set_trainer_adapters(const Settings& s, Imported& in) {
  const std::string kind = s.text("adapter", "full");
  if (kind == "full" || kind.empty()) return;
  if (kind != "lora" && kind != "qlora")
    throw NotJudged(s.at("the kind of training"), fmt::format("\"{}\"", cut_text(kind, 40)),
                    "full, lora or qlora", "plans have no other adapters");
  Training& training = in.layout.training.edit();
  training.adapter_rank = s.number("lora_r", rule_of(&Training::adapter_rank), 8);
  const Json* const bits = s.find("load_in_4bit");
  if (bits != nullptr && (*bits == true || *bits == 4)) set_weights_in_4_bits(s, "bnb_config_kwargs", in);
  if (is_on(s, "load_in_8bit") || (bits != nullptr && *bits == 8))
    training.frozen_format = FrozenFormat::int8;
  std::vector<std::string> targets = s.texts("lora_target_modules");
  const std::vector<std::string> parameters = s.texts("lora_target_parameters");
  bool alone = !parameters.empty() && targets.empty() && !is_on(s, "lora_target_linear");
  if (in.model && targets == std::vector<std::string>{kTargetsOfPeft}) {
    const Json& known = tuner_table("peft_targets");
    targets = split_at(known.value(in.model->type, "all"), ' ');
    alone = !parameters.empty() && !known.contains(in.model->type);
    if (parameters.empty() && !known.contains(in.model->type))
      in.refused = Problem{"lora_target_modules", "none, and PEFT 0.21.2 has none for " + in.model->type,
                           "names of modules", "--lora_target_modules all-linear"};
  }
  const bool all = targets.empty() || is_on(s, "lora_target_linear") || targets.front() == "all" ||
                   targets.front() == "all-linear";
  if (all) targets.clear();
  const auto patterns = wildcards_of_peft(targets, tuner_table("modules"));
  AdapterMatch match = alone ? AdapterMatch{} : match_recipe(in, hugging_face_modules, patterns, all);
  // LLaMA-Factory 0.9.5 takes PEFT up to 0.18.1, which moves none.
  if (in.model && !alone && !s.has("cutoff_len") && !s.has("finetuning_type"))
    move_adapters(patterns, all, match, in);
  if (!parameters.empty() && !contains(match.targets, AdapterTarget::experts))
    match.targets.push_back(AdapterTarget::experts);
  if (any_of(parameters, [](const auto& name) { return name.find("experts.") == std::string::npos; }))
    in.unknown.emplace_back("lora_target_parameters");
  set_adapter_targets(match, targets, s.at("LoRA"), in);
  train_whole_modules(s.texts("lora_modules_to_save"), in);
}

void train_in_16_bits(int optimizer_bytes, bool halves, Imported& in) {
  if (halves)  // torch/amp/grad_scaler.py, _unscale_grads_: "Attempting to unscale FP16 gradients."
    in.refused = Problem{"fp16", "weights in fp16", "weights in fp32 beside fp16", "bf16, or dtype: float32"};
  in.execution.insert(in.execution.end(),
                      {"weight_bytes=2", "gradient_bytes=2", "reduced_bytes=2", "narrows_each_input=false",
                       fmt::format("optimizer_bytes={}", optimizer_bytes),
                       fmt::format("bucket_bytes={}", optimizer_bytes - 4)});
}

Precision trainer_precision(const Settings& s, Precision launched) {
  if (is_on(s, "fp8")) return Precision::fp8;
  return is_on(s, "bf16") ? Precision::bf16 : is_on(s, "fp16") ? Precision::fp16 : launched;
}

void set_trainer_settings(const Settings& s, const std::filesystem::path& folder, Imported& in) {
  Layout& l = in.layout;
  in.workload.sequence = s.number("block_size", rule_of(&Workload::sequence), 1024);
  // The Trainer's own default of sequences per GPU is 8.
  l.micro_batch = s.number("per_device_train_batch_size", rule_of(&Layout::micro_batch), 8);
  in.accumulated = s.number("gradient_accumulation_steps", rule_of(&Workload::global_batch), 1);
  const int64_t batch = l.data * l.micro_batch * in.accumulated;  // 0: the launcher takes all GPUs
  in.workload.global_batch = batch <= int64_t(rule_of(&Workload::global_batch).maximum) ? batch : 0;
  // Losses that keep no logits: the Trainer's, and axolotl's (integrations/cut_cross_entropy).
  const auto cuts = [](const std::string& plugin) { return plugin.ends_with("CutCrossEntropyPlugin"); };
  if (is_on(s, "use_liger_kernel") || (any_of(s.texts("plugins"), cuts) && s.flag("cut_cross_entropy", true)))
    in.execution.emplace_back("loss=chunked");
  if (is_on(s, "torch_compile")) in.execution.emplace_back("elementwise=compiled");
  set_optimizer(in, s.text("optim", "adamw_torch_fused"));
  if (s.text("optim", "") == "adamw_torch_8bit") in.execution.emplace_back("wide_table_moments=false");
  set_hugging_face_model(in, s.text("config_name", s.text("model_name_or_path", "")), folder);
  set_recompute(s, in);
}

void set_deferred_sums(const Settings& s, Imported& in) {
  // transformers/trainer.py:1904-1915, accelerate/accelerator.py:1166
  const char* const key = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch";
  if (in.layout.zero < 2 || in.accumulated < 2 || s.flag(key, false)) return;
  defer_gradient_sums(key, "true", in);
}

void build_in_each_process(int bytes, Imported& in) {
  in.execution.insert(in.execution.end(),
                      {"host_build_bytes=0", fmt::format("process_build_bytes={}", bytes)});
}

// Ranks that recipes without FSDP are not priced with, and experts that axolotl widens there.
void judge_without_fsdp(const Settings& s, bool axolotl, Imported& in) {
  for (const char* key : {"context_parallel_size", "tensor_parallel_size"})
    if (s.number(key, rule_of(&Layout::context), 1) > 1) in.unknown.emplace_back(key);
  // axolotl/loaders/model.py, _prepare_model_for_quantization; findings/qlora_holds_experts_in_fp32.sh
  const bool widens = axolotl && in.layout.zero < 3 && !is_on(s, "quantize_moe_experts");
  if (widens && in.layout.training->frozen_format != FrozenFormat::bf16 && in.model &&
      in.model->moe() != nullptr)
    in.unknown.emplace_back("quantize_moe_experts: false, so that axolotl makes the experts fp32");
}

std::optional<Imported> read_tuner(const Json& recipe, const std::filesystem::path& file) {
  if (auto in = recipe.contains("cutoff_len") ? read_megatron_recipe(recipe, file) : std::nullopt) return in;
  const Settings s(recipe.is_object() ? recipe_of_tuner(recipe) : nullptr, file.string());
  if (!s.has("block_size")) return std::nullopt;
  Imported in;
  const Precision precision = trainer_precision(s, Precision::fp32);
  const bool fsdp = !s.has("deepspeed") && (s.has("fsdp") || s.has("fsdp_config"));
  auto given = settings_by_path(s.all(), "train.");
  if (s.has("deepspeed")) {
    const bool within = s.find("deepspeed")->is_object();
    std::filesystem::path config = within ? file : file.parent_path() / s.text("deepspeed", "");
    if (!finds_file(config)) config = s.text("deepspeed", "");  // other paths count from the working folder
    const Settings settings(within ? *s.find("deepspeed") : load_json(config, kMostImportedBytes),
                            config.string());
    given.merge(settings_by_path(settings.all(), "deepspeed."));
    in = read_deepspeed(settings, {.trainer = precision, .fills = true});
  } else if (fsdp) {
    const FsdpRanks sharding = fsdp_sharding(s, s.number("fsdp_version", between(1, 2), 2), in);
    // axolotl/utils/schemas/config.py
    in.layout.context = s.number("context_parallel_size", rule_of(&Layout::context), 1);
    in.layout.tensor = s.number("tensor_parallel_size", rule_of(&Layout::tensor), 1);
    set_fsdp(in,
             {s.number("dp_replicate_size", rule_of(&Layout::data), sharding.replicate),
              s.number("dp_shard_size", between(0, double(kMostRanks)), 0), sharding.reshard},
             file.string());
    in.layout.offload_optimizer = is_on(s, "fsdp_config.fsdp_offload_params");
  } else {
    in.notes.emplace_back("neither DeepSpeed nor FSDP is named: each GPU has all weights and states");
    if (finds_file(file.parent_path() / "accelerate.yaml"))
      in.notes.emplace_back("accelerate.yaml is not read: import the script whose line names both files");
    in.layout.overlap_gradient_reduce = true;
    in.layout.data = 0;  // the launcher takes all GPUs
  }
  in.framework = fsdp                 ? "transformers-fsdp"
                 : s.has("deepspeed") ? "transformers-deepspeed"
                                      : "transformers-ddp";
  if (!in.refused)
    in.refused = asked_of(framework_named("transformers-fsdp", ""))->refusal(given, true, file.string());
  in.layout.precision = precision;
  set_trainer_settings(s, file.parent_path(), in);
  if (is_on(s, "fsdp_config.fsdp_activation_checkpointing")) in.layout.recompute = Recompute::full;
  const bool axolotl = !recipe.contains("cutoff_len");
  // axolotl/monkeypatch/accelerate/fsdp2.py turns no weight into fp32, and axolotl loads them in the type of
  // products, without sharding to the GPU (axolotl/loaders/model.py, _set_device_map_config).
  const bool narrow = axolotl && precision != Precision::fp32 && s.text("adapter", "").empty();
  if (narrow && !s.has("deepspeed"))
    train_in_16_bits(fsdp ? 4 : 6, !fsdp && precision == Precision::fp16, in);
  if (axolotl && in.framework == "transformers-ddp") build_in_each_process(0, in);
  set_trainer_adapters(s, in);
  if (fsdp) set_loading(s, axolotl, narrow, in);
  if (!fsdp) judge_without_fsdp(s, axolotl, in);
  judge_keys(recipe, axolotl ? "axolotl" : "LLaMA-Factory", "", in);
  if (fsdp) set_deferred_sums(s, in);
  if (is_on(s, "use_ray") || !axolotl)
    in.ranks = s.number("ray_num_workers", between(0, double(kMostRanks)), in.ranks);
  in.notes.push_back(
      fmt::format("sequences are priced as long as the longest, {} tokens", in.workload.sequence));
  set_stages(in, {}, file.string());
  check_imported(in, file.string());
  return in;
}

std::optional<Settings> arguments_beside(const std::filesystem::path& file) {
  const std::filesystem::path path = file.parent_path() / "train.json";
  if (!finds_file(path)) return std::nullopt;
  return Settings(load_json(path, kMostImportedBytes), path.string());
}

}  // namespace mpt::frameworks
