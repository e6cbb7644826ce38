// SPDX-License-Identifier: Apache-2.0

// Fields of src/transformers/training_args.py, of ClusterConfig in src/accelerate/commands/config/
// config_args.py at v1.15.0, and options of src/accelerate/commands/launch.py.

#include "frameworks/transformers/trainer.h"

#include "frameworks/readers/settings.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {

Json trainer_arguments(const Plan& plan, const std::string& model) {
  const Layout& l = plan.layout;
  Json arguments{{"config_name", model},
                 {"block_size", plan.workload.sequence},
                 {"per_device_train_batch_size", l.micro_batch},
                 {"gradient_accumulation_steps", micro_batches(l, plan.workload)}};
  if (l.precision == Precision::bf16 || is_narrow(l.precision)) arguments["bf16"] = true;
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

ExportedFile accelerate_script(const Plan& plan, const std::string& settings, const std::string& options) {
  return {"run_accelerate.sh",
          filled("run_accelerate.sh", plan, {{"settings", settings}, {"options", options}}), true};
}

void read_trainer_arguments(const std::filesystem::path& file, Imported& in) {
  const std::filesystem::path path = file.parent_path() / "train.json";
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) {
    in.notes.push_back("there is no train.json beside it: give --global-batch and --seq");
    set_hugging_face_model(in, "", file.parent_path());
    return;
  }
  const Settings arguments(load_json(path, kMostImportedBytes), path.string());
  Layout& l = in.layout;
  in.workload.sequence = arguments.number("block_size", rule_of(&Workload::sequence), 1024);
  // The Trainer's own default of sequences per GPU is 8.
  l.micro_batch = arguments.number("per_device_train_batch_size", rule_of(&Layout::micro_batch), 8);
  const int64_t steps = arguments.number("gradient_accumulation_steps", rule_of(&Workload::global_batch), 1);
  if (l.data > 0 && l.data * l.micro_batch * steps <= int64_t(rule_of(&Workload::global_batch).maximum))
    in.workload.global_batch = l.data * l.micro_batch * steps;
  if (arguments.flag("gradient_checkpointing", false)) l.recompute = Recompute::full;
  const std::string optimizer = arguments.text("optim", "adamw_torch_fused");
  if (optimizer == "adamw_bnb_8bit" || optimizer == "adamw_8bit" || optimizer == "adamw_torch_8bit")
    l.training.optimizer = OptimizerKind::adamw8;
  if (optimizer == "adafactor") l.training.optimizer = OptimizerKind::adafactor;
  const std::string named = arguments.text("config_name", arguments.text("model_name_or_path", ""));
  set_hugging_face_model(in, named, file.parent_path());
}

}  // namespace mpt::frameworks
