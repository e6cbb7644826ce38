// SPDX-License-Identifier: Apache-2.0

// Hugging Face's Trainer with DeepSpeed: DeepSpeed's JSON, accelerate's YAML, and the Trainer's arguments.

#include "frameworks/deepspeed/deepspeed.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {

Exported export_transformers_deepspeed(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  Json config = accelerate_config(plan, "DEEPSPEED");
  config.erase("mixed_precision");  // DeepSpeed's file has it
  config["deepspeed_config"] = {{"deepspeed_config_file", "deepspeed.json"},
                                {"zero3_init_flag", l.zero == 3}};
  // By default the first node starts the others over ssh, with a hosts file that does not exist.
  if (node_count(plan) > 1) config["deepspeed_config"]["deepspeed_multinode_launcher"] = "standard";
  exported.files.push_back(
      {"accelerate.yaml",
       fmt::format("# {}. For accelerate 1.15.0 and DeepSpeed 0.19.8.\n", export_title(plan)) +
           yaml_text(config)});
  Json deepspeed = deepspeed_config(plan);
  // The Trainer compares it with a product over all ranks, context ranks included, and refuses other values.
  if (l.context > 1) deepspeed.erase("train_batch_size");
  exported.files.push_back({"deepspeed.json", deepspeed.dump(2) + "\n"});
  Json arguments = trainer_arguments(plan, "transformers-deepspeed", exported);
  exported.files.push_back({"train.json", arguments.dump(2) + "\n"});
  // accelerate's options have these degrees for FSDP only; its code reads these variables. The attention has
  // no default.
  const std::string ranks = std::to_string(l.context), others = std::to_string(l.data);
  const std::string context =
      l.context == 1 ? "" : filled("ulysses.sh", plan, {{"context", ranks}, {"data", others}});
  add_accelerate_scripts(plan, context, "--deepspeed_config_file \"$here/deepspeed.json\" ", exported);
  add_sentences({{l.training->optimizer == OptimizerKind::adamw8,
                  "the package bitsandbytes, which 8-bit AdamW comes from"},
                 {l.context > 1,
                  "position_ids in each batch of your script: torch.arange(length) for a sequence, as in "
                  "mpt_trainer_trial.py"}},
                exported.needs);
  return exported;
}

}  // namespace mpt::frameworks
