// SPDX-License-Identifier: Apache-2.0

// Fields of src/transformers/training_args.py, of ClusterConfig in src/accelerate/commands/config/
// config_args.py at v1.15.0, and options of src/accelerate/commands/launch.py.

#include "frameworks/transformers/trainer.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/asked.h"
#include "frameworks/deepspeed/deepspeed.h"
#include "frameworks/framework.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {

Json trainer_arguments(const Plan& plan, const std::string& model) {
  const Layout& l = plan.layout;
  Json arguments{{"config_name", model},
                 {"block_size", plan.workload.sequence},
                 {"per_device_train_batch_size", l.micro_batch},
                 {"gradient_accumulation_steps", micro_batches(l, plan.workload)}};
  // In 8 bits neither: either word would come before accelerate's precision (training_args.py:1614).
  if (l.precision == Precision::bf16) arguments["bf16"] = true;
  if (l.precision == Precision::fp16) arguments["fp16"] = true;
  // FSDP shares weights out as DTensors, whose states bitsandbytes does not keep and torchao does.
  const bool shares_weights = l.execution.framework == "transformers-fsdp";
  if (l.training.optimizer == OptimizerKind::adamw8)
    arguments["optim"] = shares_weights ? "adamw_torch_8bit" : "adamw_bnb_8bit";
  if (l.training.optimizer == OptimizerKind::adafactor) arguments["optim"] = "adafactor";
  return arguments;
}

Json accelerate_config(const Plan& plan, const char* kind) {
  const Layout& l = plan.layout;
  const char* precision = l.precision == Precision::fp32   ? "no"
                          : l.precision == Precision::fp16 ? "fp16"
                          : l.precision == Precision::bf16 ? "bf16"
                                                           : "fp8";
  return Json{{"compute_environment", "LOCAL_MACHINE"},
              {"distributed_type", kind},
              {"mixed_precision", precision},
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
  return value != nullptr && *value != false && *value != "false" && *value != "none";
}

// Settings of programs that train by the Trainer, under its names and PEFT's: hiyouga/LLaMA-Factory,
// src/llamafactory/hparams, and axolotl-ai-cloud/axolotl, src/axolotl/utils/schemas. Null: of neither.
Json trainer_names(Json recipe) {
  static const std::pair<const char*, const char*> kNames[] = {
      {"cutoff_len", "block_size"},
      {"finetuning_type", "adapter"},
      {"lora_rank", "lora_r"},
      {"lora_target", "lora_target_modules"},
      {"quantization_bit", "load_in_4bit"},
      {"base_model", "model_name_or_path"},
      {"sequence_len", "block_size"},
      {"micro_batch_size", "per_device_train_batch_size"},
      {"optimizer", "optim"}};
  const bool factory = recipe.contains("cutoff_len");
  if (!factory && !recipe.contains("sequence_len")) return nullptr;
  for (const auto& [theirs, ours] : kNames) {
    if (recipe.contains(theirs)) recipe[ours] = recipe[theirs];
  }
  if (!factory && !recipe.contains("fp16")) recipe.emplace("bf16", "auto");  // where the GPU has it
  if (!factory) return recipe;
  if (!recipe.contains("adapter")) recipe["adapter"] = "lora";
  const char* const disabled = "disable_gradient_checkpointing";
  recipe["gradient_checkpointing"] = !recipe.contains(disabled) || recipe[disabled] != true;
  return recipe;
}

// Adapters of low rank, over weights in 4 bits where the file says so.
void set_trainer_adapters(const Settings& s, Imported& in) {
  const std::string kind = s.text("adapter", "full");
  if (kind == "full" || kind.empty()) return;
  if (kind != "lora" && kind != "qlora")
    throw UserError(Problem{s.at("the kind of training"), fmt::format("\"{}\"", cut_text(kind, 40)),
                            "full, lora or qlora", "plans have no other adapters"});
  Training& training = in.layout.training;
  training.adapter_rank = s.number("lora_r", rule_of(&Training::adapter_rank), 8);
  const Json* const bits = s.find("load_in_4bit");
  if (bits != nullptr && (*bits == true || *bits == 4)) training.frozen_format = FrozenFormat::nf4;
  std::vector<std::string> targets = s.texts("lora_target_modules");
  const bool all = targets.empty() || targets.front() == "all" || targets.front() == "all-linear";
  if (all) targets.clear();
  set_adapter_targets(match_recipe(in, hugging_face_modules, targets, all), targets, s.at("LoRA"), in);
}

}  // namespace

Precision trainer_precision(const Settings& s, Precision launched) {
  return is_on(s, "bf16") ? Precision::bf16 : is_on(s, "fp16") ? Precision::fp16 : launched;
}

void set_trainer_settings(const Settings& s, const std::filesystem::path& folder, Imported& in) {
  Layout& l = in.layout;
  in.workload.sequence = s.number("block_size", rule_of(&Workload::sequence), 1024);
  // The Trainer's own default of sequences per GPU is 8.
  l.micro_batch = s.number("per_device_train_batch_size", rule_of(&Layout::micro_batch), 8);
  in.workload.global_batch = 0;
  in.accumulated = s.number("gradient_accumulation_steps", rule_of(&Workload::global_batch), 1);
  if (l.data > 0 &&
      l.data * l.micro_batch * in.accumulated <= int64_t(rule_of(&Workload::global_batch).maximum))
    in.workload.global_batch = l.data * l.micro_batch * in.accumulated;
  if (is_on(s, "gradient_checkpointing")) l.recompute = Recompute::full;
  set_optimizer(in, s.text("optim", "adamw_torch_fused"));
  set_hugging_face_model(in, s.text("config_name", s.text("model_name_or_path", "")), folder);
}

std::optional<Imported> read_tuner(const Json& recipe, const std::filesystem::path& file) {
  const Settings s(recipe.is_object() ? trainer_names(recipe) : nullptr, file.string());
  if (!s.has("block_size")) return std::nullopt;
  Imported in;
  const Precision precision = trainer_precision(s, Precision::fp32);
  const bool fsdp = s.has("fsdp") || s.has("fsdp_config");
  auto given = settings_by_path(s.all(), "train.");
  if (s.has("deepspeed")) {
    std::filesystem::path config = file.parent_path() / s.text("deepspeed", "");
    std::error_code error;  // other paths count from the working folder
    if (!std::filesystem::is_regular_file(config, error)) config = s.text("deepspeed", "");
    const Settings settings(load_json(config, kMostImportedBytes), config.string());
    given.merge(settings_by_path(settings.all(), "deepspeed."));
    in = read_deepspeed(settings, {.trainer = precision, .fills = true});
  } else if (fsdp) {
    const std::vector<std::string> how = s.texts("fsdp");
    set_fsdp(in, {1, 0, !contains(how, "shard_grad_op")}, file.string());
  } else {
    in.notes.emplace_back("neither DeepSpeed nor FSDP is named: each GPU has all weights and states");
  }
  if (is_on(s, "fsdp_config.fsdp_offload_params") || is_on(s, "fsdp_config.offload_params"))
    in.notes.emplace_back("fsdp_offload_params: weights in the host's memory are not in a plan");
  in.framework = fsdp ? "transformers-fsdp" : "transformers-deepspeed";
  if (!in.refused)
    in.refused = asked_of(framework_named("transformers-fsdp", ""))->refusal(given, true, file.string());
  in.layout.precision = precision;
  set_trainer_settings(s, file.parent_path(), in);
  set_trainer_adapters(s, in);
  in.notes.push_back(
      fmt::format("sequences are priced as long as the longest, {} tokens", in.workload.sequence));
  set_stages(in, {}, file.string());
  check_imported(in, file.string());
  return in;
}

std::optional<Settings> arguments_beside(const std::filesystem::path& file) {
  const std::filesystem::path path = file.parent_path() / "train.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return std::nullopt;
  return Settings(load_json(path, kMostImportedBytes), path.string());
}

}  // namespace mpt::frameworks
