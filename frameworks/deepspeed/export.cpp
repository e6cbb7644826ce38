// SPDX-License-Identifier: Apache-2.0

// DeepSpeed: keys of deepspeed/runtime/constants.py, runtime/config.py, runtime/zero/config.py and
// module_inject/auto_ep_config.py at v0.19.8, and a module that starts its engine with the rest of the plan.

#include "frameworks/deepspeed/deepspeed.h"

#include "frameworks/pytorch/trainer_file.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {
namespace {

Json zero_optimization(const Layout& l) {
  Json zero{{"stage", l.zero}, {"overlap_comm", l.overlap_gradient_reduce}};
  if (l.zero == 0) return zero;
  zero["contiguous_gradients"] = true;
  zero["reduce_scatter"] = true;
  if (l.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  return zero;
}

// DeepSpeed's default type for gradient sums is the weights'; the plan counts the bytes of a stated type.
std::string gradient_type(const Layout& l) {
  if (l.precision == Precision::fp32) return "fp32";
  return gradient_element_bytes(l) == 2 ? enum_name(l.precision) : "fp32";
}

std::string module_text(const Plan& plan, const std::string& model) {
  const Layout& l = plan.layout;
  const std::string text = filled("mpt_deepspeed.py", plan,
                                  {{"model", model},
                                   {"sequence", std::to_string(plan.workload.sequence)},
                                   {"context", std::to_string(l.context)},
                                   {"recompute", python_text(l.recompute == Recompute::full)},
                                   {"stages", std::to_string(l.pipeline)}});
  return kept_lines(text, {{"pipeline", l.pipeline > 1}, {"context", l.context > 1 && l.pipeline == 1}});
}

}  // namespace

Json deepspeed_config(const Plan& plan) {
  const Layout& l = plan.layout;
  Json config{{"train_micro_batch_size_per_gpu", l.micro_batch},
              {"gradient_accumulation_steps", micro_batches(l, plan.workload)},
              {"zero_optimization", zero_optimization(l)}};
  // DeepSpeed compares the product with all ranks, tensor ranks included. A plan's batch does not count
  // those.
  if (l.tensor == 1 || l.pipeline > 1) config["train_batch_size"] = plan.workload.global_batch;
  if (l.precision == Precision::bf16 || is_narrow(l.precision)) config["bf16"] = {{"enabled", true}};
  if (l.precision == Precision::fp16) config["fp16"] = {{"enabled", true}};
  config["data_types"] = {{"grad_accum_dtype", gradient_type(l)}};
  if (l.tensor > 1) config["tensor_parallel"] = {{"autotp_size", l.tensor}};
  if (l.context > 1) config["sequence_parallel_size"] = l.context;
  if (l.expert > 1) config["expert_parallel"] = {{"enabled", true}, {"autoep_size", l.expert}};
  return config;
}

Exported export_deepspeed(const Plan& plan) {
  Exported exported;
  Json config = deepspeed_config(plan);
  // With both degrees in the file, deepspeed.initialize() builds the mesh.
  if (plan.layout.context > 1) config["data_parallel_size"] = plan.layout.data;
  config["steps_per_print"] = 10;  // for speed and memory in the log (mpt-plan diagnose)
  exported.files.push_back({"deepspeed.json", config.dump(2) + "\n"});
  const std::string model = add_hugging_face_model(plan.model, "deepspeed", exported, BalanceLoss::trained);
  exported.files.push_back({"mpt_deepspeed.py", module_text(plan, model)});
  if (plan.layout.pipeline == 1) add_trial(plan, "DeepSpeed 0.19.8", "deepspeed", {}, exported);
  // runtime/pipe/engine.py:76-77, also for one replica
  add_sentences(
      {{plan.layout.pipeline > 1 && plan.layout.zero >= 2, "its pipelines take ZeRO 0 and 1 alone"}},
      exported.warnings);
  return exported;
}

}  // namespace mpt::frameworks
