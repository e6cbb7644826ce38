// SPDX-License-Identifier: Apache-2.0

// Hugging Face's Trainer with FSDP2: accelerate's YAML, its keys as the options of accelerate launch at
// v1.15.0, and the Trainer's arguments.

#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/classes.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {
namespace {

Json fsdp_config(const Layout& l) {
  return Json{{"fsdp_version", 2},
              {"fsdp_reshard_after_forward", l.zero == 3},
              {"fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"},
              {"fsdp_activation_checkpointing", l.recompute == Recompute::full && !recomputes_partly(l)},
              {"fsdp_offload_params", l.offload_optimizer},
              // torchao's fp8 is refused beside it (accelerate 1.15.0, accelerator.py:519).
              {"fsdp_cpu_ram_efficient_loading", !is_narrow(l.precision)},
              {"fsdp_state_dict_type", "SHARDED_STATE_DICT"}};
}

Json parallelism_config(const Layout& l) {
  const int64_t shard = sharing_data_ranks(l);
  Json config{{"parallelism_config_dp_replicate_size", l.data / shard},
              {"parallelism_config_dp_shard_size", shard},
              {"parallelism_config_cp_size", l.context}};
  if (l.context > 1) config["parallelism_config_cp_comm_strategy"] = "alltoall";  // keys go round
  return config;
}

}  // namespace

Exported export_transformers_fsdp(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  Json config = accelerate_config(plan, "FSDP");
  config["fsdp_config"] = fsdp_config(l);
  const auto layers = class_names("wrapped", framework_named("transformers-fsdp", "export"), plan.model);
  if (!layers.empty()) config["fsdp_config"]["fsdp_transformer_layer_cls_to_wrap"] = layers.front();
  if (l.ranks() > 1) config["parallelism_config"] = parallelism_config(l);
  if (is_narrow(l.precision)) config["fp8_config"] = {{"backend", "AO"}};
  exported.files.push_back(
      {"accelerate.yaml",
       fmt::format("# {}. For accelerate 1.15.0.\n", export_title(plan)) + yaml_text(config)});
  Json arguments = trainer_arguments(plan, "transformers-fsdp", exported);
  // Else whole gradients stay on every rank until the last micro-batch.
  arguments["accelerator_config"] = {{"gradient_accumulation_kwargs", {{"sync_each_batch", true}}}};
  exported.files.push_back({"train.json", arguments.dump(2) + "\n"});
  add_accelerate_scripts(plan, "", "", exported);
  // transformers/trainer_optimizer.py and accelerate/utils/dataclasses.py: backend AO
  add_sentences({{is_narrow(l.precision) || l.training->optimizer == OptimizerKind::adamw8,
                  "the package torchao, which products and states in 8 bits come from"},
                 {is_narrow(l.precision),
                  "host memory for the whole model in each process: fp8 does not go with efficient loading"}},
                exported.needs);
  return exported;
}

}  // namespace mpt::frameworks
