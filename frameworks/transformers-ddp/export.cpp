// SPDX-License-Identifier: Apache-2.0

// Hugging Face's Trainer with DDP, or on one GPU: accelerate's YAML and the Trainer's arguments.

#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/trainer.h"

namespace mpt::frameworks {

Exported export_transformers_ddp(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  const bool one = l.ranks() == 1;
  exported.files.push_back(
      {"accelerate.yaml", fmt::format("# {}. For accelerate 1.15.0.\n", export_title(plan)) +
                              yaml_text(accelerate_config(plan, one ? "NO" : "MULTI_GPU"))});
  Json arguments = trainer_arguments(plan, "transformers-ddp", exported);
  // Indexers get no gradients; with recompute the Trainer does not look for unused parameters (findings: run,
  // step 2).
  if (traits_of(plan.model) & bit(Trait::sparse_attention) && l.recompute == Recompute::full)
    arguments["ddp_find_unused_parameters"] = true;
  exported.files.push_back({"train.json", arguments.dump(2) + "\n"});
  // If one process sees several GPUs, the Trainer uses all of them by DataParallel.
  add_accelerate_scripts(plan, one ? "export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0}\n" : "", "",
                         exported);
  add_sentences({{l.training->optimizer == OptimizerKind::adamw8,
                  "the package bitsandbytes, which 8-bit AdamW comes from"}},
                exported.needs);
  return exported;
}

}  // namespace mpt::frameworks
