// SPDX-License-Identifier: Apache-2.0

// NeMo AutoModel: a recipe's YAML; keys of nemo_automodel/recipes/_dist_utils.py, components/distributed/
// config.py, components/distributed/pipelining/config.py and recipes/llm/train_ft.py at v0.7.0.

#include <set>

#include "base/ranges.h"
#include "frameworks/export.h"
#include "frameworks/readers/adapter_modules.h"
#include "frameworks/readers/yaml_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {
namespace {

// Parts of recipes without values of a plan.
Json fixed_part(const char* name) {
  static const Json parts = parse_json(template_text("recipe.json"), "recipe.json");
  return parts.at(name);
}

// `from_hub`: the hub's file names the class. The class of Qwen3.5 also reads images, and contains the text
// model: nemo_automodel/components/models/qwen3_5/model.py:671 and qwen3_5_moe/model.py:533.
Json recipe_modules(const Plan& plan, bool from_hub) {
  static const std::vector<std::string> kInside{"qwen3_5_text", "qwen3_5_moe_text"};
  const bool inside = from_hub && contains(kInside, plan.model.type);
  const std::string at = inside ? "model.language_model." : "model.";
  Json stages = stage_modules(plan, {at + "embed_tokens", at + "layers.", at + "norm"});
  for (Json& modules : stages) modules.push_back(at + "rotary_emb");
  return stages;
}

Json recipe_pipeline(const Plan& plan, bool from_hub) {
  const Layout& l = plan.layout;
  return Json{{"pp_schedule", torch_class_of(l.schedule)},
              {"pp_microbatch_size", l.micro_batch},
              {"pp_seq_len", plan.workload.sequence},
              {"module_fqns_per_model_part", recipe_modules(plan, from_hub)}};
}

Json recipe_distributed(const Plan& plan, bool from_hub) {
  const Layout& l = plan.layout;
  // Without FSDP (on one rank, or with DDP) only this runs products in 16 bits.
  const bool casts = l.precision != Precision::fp32;
  if (l.zero == 0 && l.replicas() > 1) {
    Json plain{{"strategy", "ddp"}, {"activation_checkpointing", l.recompute == Recompute::full}};
    if (casts) plain["autocast_dtype"] = "bfloat16";
    return plain;
  }
  Json d{{"strategy", "fsdp2"},
         {"dp_size", l.data},
         {"dp_replicate_size", l.data / sharing_data_ranks(l)},
         {"tp_size", l.tensor},
         {"cp_size", l.context},
         {"pp_size", l.pipeline},
         {"ep_size", l.expert},
         {"sequence_parallel", l.sequence_parallel},
         {"activation_checkpointing", l.recompute == Recompute::full},
         {"reshard_after_forward", l.zero == 3},
         // Stages that reduce each micro-batch reshard before a split backward has the weights' gradients.
         {"defer_fsdp_grad_sync", l.pipeline > 1}};
  if (casts && l.ranks() == 1) d["autocast_dtype"] = "bfloat16";
  if (l.overlap_tensor) {
    d["enable_async_tensor_parallel"] = true;
    d["enable_compile"] = true;
  }
  if (l.precision == Precision::fp32) d["mp_policy"] = fixed_part("fp32");
  if (l.pipeline > 1) d["pipeline"] = recipe_pipeline(plan, from_hub);
  if (l.expert > 1) d["moe"] = {{"reshard_after_forward", l.zero == 3}};
  return d;
}

// A model built from its configuration has random weights. Adapters over random weights learn nothing useful.
const char* pretrained_text(const Training& training) {
  if (!training.adapts()) return "";
  return "# The adapters need trained weights: add "
         "--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained and\n"
         "# --model.pretrained_model_name_or_path=..., and remove model.config from automodel.yaml.\n";
}

// Patterns of Hugging Face's module names, and of classes that compute several of them as one product.
Json adapter_modules(const Plan& plan) {
  std::set<std::string> names;
  for (const bool fused : {false, true})
    for (const auto& [name, target] : hugging_face_modules(plan.model, fused))
      if (target && plan.layout.training->adapts(*target)) names.insert("*" + name.substr(name.rfind('.')));
  return names;
}

// components/_peft/lora.py, components/quantization/qlora.py.
void add_adapters(const Plan& plan, Json& recipe) {
  const Training& t = plan.layout.training;
  if (!t.adapts()) return;
  recipe["peft"] = {{"_target_", "nemo_automodel.components._peft.lora.PeftConfig"},
                    {"target_modules", adapter_modules(plan)},
                    {"dim", t.adapter_rank},
                    {"alpha", 2 * t.adapter_rank}};
  // Frozen weights keep the model's type.
  recipe["model"]["torch_dtype"] = "bfloat16";
  if (t.frozen_format == FrozenFormat::nf4) recipe["quantization"] = fixed_part("nf4");
}

}  // namespace

Exported export_automodel(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  const std::string model = add_hugging_face_model(plan.model, "automodel", exported);
  const bool own_file = model == "config.json";
  Json recipe{{"recipe", "TrainFinetuneRecipeForNextTokenPrediction"},
              {"step_scheduler",
               {{"global_batch_size", plan.workload.global_batch},
                {"local_batch_size", l.pipeline > 1 ? plan.workload.global_batch / l.data : l.micro_batch}}},
              {"model",
               {{"_target_", "nemo_automodel.NeMoAutoModelForCausalLM.from_config"},
                {"config", own_file ? "." : model},  // a lone file would ask the hub
                {"torch_dtype", l.execution->states.weight_bytes == 4 ? "float32" : "bfloat16"}}},
              {"distributed", recipe_distributed(plan, !own_file)},
              {"loss_fn", fixed_part("loss_fn")},
              {"optimizer", {{"_target_", "torch.optim.AdamW"}, {"fused", true}}}};
  // Their sparse attention over context ranks has these kernels only (_transformers/capabilities.py:479).
  static const std::vector<std::string> kSparse{"deepseek_v4", "glm_moe_dsa"};
  if (l.context > 1 && contains(kSparse, plan.model.type)) recipe["model"]["backend"] = fixed_part("sparse");
  if (is_narrow(l.precision)) {
    recipe["fp8"] = fixed_part("fp8");
    if (!head_in_fp8(l)) recipe["fp8"]["filter_fqns"] = Json::array({"lm_head"});
  }
  add_adapters(plan, recipe);
  if (l.training->optimizer == OptimizerKind::sgd) recipe["optimizer"] = fixed_part("sgd");
  // Random tokens of the plan's length, in place of the user's data.
  recipe["dataset"] = fixed_part("dataset");
  recipe["dataset"].update({{"seq_len", plan.workload.sequence}, {"vocab_size", plan.model.vocab}});
  exported.files.insert(
      exported.files.begin(),
      {"automodel.yaml",
       fmt::format("# {}. For NeMo AutoModel 0.7.0.\n", export_title(plan)) + yaml_text(recipe)});
  const char* const own_model = own_file ? "--model.config=\"$here\" " : "";
  add_filled(plan, "run_automodel.sh", {{"pretrained", pretrained_text(l.training)}, {"model", own_model}},
             exported);
  return exported;
}

}  // namespace mpt::frameworks
