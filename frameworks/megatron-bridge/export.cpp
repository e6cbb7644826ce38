// SPDX-License-Identifier: Apache-2.0

// Megatron-Bridge: fields of its ConfigContainer at v0.6.2 (src/megatron/bridge/training/config.py). The
// container's parts come from Megatron-LM core_v0.19.2.

#include "frameworks/export.h"

#include <fmt/ranges.h>

#include "frameworks/dialects.h"
#include "frameworks/megatron-core/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

std::string quoted(const std::string& text) { return fmt::format("\"{}\"", text); }

// Lines of Python that set fields of a configuration.
class Assignments {
 public:
  // A Python expression.
  void set(const std::string& field, const std::string& value) {
    text_ += fmt::format("    config.{} = {}\n", field, value);
  }
  void set(const std::string& field, const char* value) { set(field, std::string(value)); }
  void set(const std::string& field, int64_t value) { set(field, std::to_string(value)); }
  void set(const std::string& field, bool value) { set(field, std::string(value ? "True" : "False")); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

struct BridgeRecipe {
  const char *model, *family, *name;
};
constexpr BridgeRecipe kBridgeRecipes[] = {
#include "generated/BridgeRecipes.inc"
};

// The recipe of the same model, or of one with the same kind of layers: apply() sets all sizes.
BridgeRecipe recipe_of(const ModelSpec& m) {
  for (const BridgeRecipe& recipe : kBridgeRecipes)
    if (m.name == recipe.model) return recipe;
  if (m.attention().latent) return {"", "deepseek", "deepseek_v3_pretrain_config"};
  if (m.attention().sinks) return {"", "gpt_oss", "gpt_oss_20b_pretrain_config"};
  return {"", "gpt", "vanilla_gpt_pretrain_config"};
}

void set_pipeline_fields(const Plan& plan, Assignments& a) {
  const Layout& l = plan.layout;
  a.set("model.pipeline_model_parallel_size", l.pipeline);
  a.set("model.virtual_pipeline_model_parallel_size", l.chunks > 1 ? std::to_string(l.chunks) : "None");
  a.set("model.pipeline_model_parallel_layout", needs_stages(plan) ? quoted(megatron_stages(plan)) : "None");
  // Recipes may set other values.
  a.set("model.account_for_embedding_in_pipeline_split", false);
  a.set("model.account_for_loss_in_pipeline_split", false);
  a.set("model.num_layers_in_first_pipeline_stage", "None");
  a.set("model.num_layers_in_last_pipeline_stage", "None");
  a.set("model.overlap_p2p_comm", l.overlap_transfer && l.chunks > 1);
}

void set_recompute_fields(const Layout& l, Assignments& a) {
  const MegatronRecompute recompute = megatron_recompute(l);
  const auto or_none = [](const std::string& text) { return text.empty() ? "None" : quoted(text); };
  const auto modules = recompute.modules.empty() ? std::vector<std::string>{"core_attn"} : recompute.modules;
  a.set("model.recompute_granularity", or_none(recompute.granularity));
  a.set("model.recompute_modules", fmt::format("[\"{}\"]", joined(modules, "\", \"")));
  a.set("model.recompute_method", or_none(recompute.method));
  a.set("model.recompute_num_layers", recompute.layers > 0 ? std::to_string(recompute.layers) : "None");
}

void set_expert_layout_fields(const Plan& plan, Assignments& a) {
  const Layout& l = plan.layout;
  if (plan.model.moe() == nullptr) return;
  const bool once = sends_tokens_once(plan);
  a.set("model.expert_model_parallel_size", l.expert);
  a.set("model.expert_tensor_parallel_size", l.expert_split());
  a.set("model.moe_token_dispatcher_type", quoted(once ? "flex" : "alltoall"));
  if (once) a.set("model.moe_flex_dispatcher_backend", quoted(dispatch_backend(plan)));
  a.set("model.overlap_moe_expert_parallel_comm", l.overlap_exchange);
  a.set("model.moe_shared_expert_overlap", false);
  a.set("model.delay_wgrad_compute", false);
}

void set_layout_fields(const Plan& plan, Assignments& a) {
  const Layout& l = plan.layout;
  a.set("model.tensor_model_parallel_size", l.tensor);
  a.set("model.sequence_parallel", l.sequence_parallel && l.tensor > 1);
  a.set("model.tp_comm_overlap", l.overlap_tensor);
  set_pipeline_fields(plan, a);
  a.set("model.context_parallel_size", l.context);
  if (l.context > 1)
    a.set("model.cp_comm_type", quoted(l.context_method == ContextMethod::ring ? "p2p" : "a2a"));
  set_expert_layout_fields(plan, a);
  if (counts_loss_by_token(plan)) {
    a.set("model.calculate_per_token_loss", true);
    a.set("ddp.average_in_collective", false);  // true would average a second time
  }
  set_recompute_fields(l, a);
  if (!l.execution->kernels.graphs) {
    a.set("model.cuda_graph_impl", quoted("none"));
    a.set("model.cuda_graph_modules", "[]");
  }
  a.set("model.seq_length", plan.workload.sequence);
  a.set("dataset.seq_length", plan.workload.sequence);
}

const char* precision_recipe(Precision precision) {
  return precision == Precision::fp16    ? "fp16_mixed"
         : precision == Precision::fp8   ? "bf16_with_fp8_current_scaling_mixed"
         : precision == Precision::mxfp8 ? "bf16_with_mxfp8_mixed"
         : precision == Precision::nvfp4 ? "bf16_with_nvfp4_mixed"
                                         : "bf16_mixed";
}

void set_precision_fields(const Layout& l, Assignments& a) {
  if (l.precision == Precision::mxfp8) a.set("model.fp8_output_proj", head_in_fp8(l));
  if (l.precision == Precision::fp32) {
    a.set("mixed_precision",
          "MixedPrecisionConfig(fp32=True, params_dtype=torch.float32, pipeline_dtype=torch.float32)");
    return;
  }
  // A recipe's name alone has no fields to set.
  a.set("mixed_precision",
        fmt::format("get_mixed_precision_config({})", quoted(precision_recipe(l.precision))));
  // Its field for gradients replaces the one of ddp.
  a.set("mixed_precision.grad_reduce_in_fp32", gradient_element_bytes(l) == 4);
  if (!is_narrow(l.precision)) return;
  a.set("mixed_precision.fp8_dot_product_attention", attention_in_fp8(l));
  a.set("mixed_precision.first_last_layers_bf16", false);
  const bool kept = l.execution->states.fp8_weight_bytes == 1;  // weights, in 8 bits
  a.set("mixed_precision.fp8_param", kept);
  a.set("mixed_precision.reuse_grad_buf_for_mxfp8_param_ag", kept && l.precision == Precision::mxfp8);
}

// Megatron-FSDP refuses one queue of launches, because its overlapped exchange uses several.
void set_connections(const Layout& l, std::string& text) {
  const bool several = l.overlap_exchange && l.tensor == 1 && l.context == 1;
  text += l.zero > 1
              ? "    config.env_vars.pop(\"CUDA_DEVICE_MAX_CONNECTIONS\", None)\n"
              : fmt::format("    config.env_vars[\"CUDA_DEVICE_MAX_CONNECTIONS\"] = {}\n", several ? 32 : 1);
}

void set_training_fields(const Plan& plan, Assignments& a) {
  const Layout& l = plan.layout;
  a.set("train.micro_batch_size", l.micro_batch);
  a.set("train.global_batch_size", plan.workload.global_batch);
  const bool gathers = l.overlap_parameter_gather && l.zero > 0;
  for (const char* part : {"ddp", "optimizer"}) {
    a.set(fmt::format("{}.use_distributed_optimizer", part), l.zero > 0);
    a.set(fmt::format("{}.overlap_param_gather", part), gathers);
  }
  a.set("ddp.overlap_grad_reduce", l.overlap_gradient_reduce);
  a.set("ddp.align_param_gather", l.chunks > 1);
  a.set("ddp.use_megatron_fsdp", l.zero >= 2);
  a.set("dist.use_megatron_fsdp", l.zero >= 2);
  a.set("ddp.data_parallel_sharding_strategy", quoted(l.zero == 3   ? "optim_grads_params"
                                                      : l.zero == 2 ? "optim_grads"
                                                                    : "no_shard"));
  if (l.zero >= 2) a.set("checkpoint.ckpt_format", quoted("fsdp_dtensor"));
  a.set("ddp.num_distributed_optimizer_instances",
        l.zero > 0 && l.shard < l.replicas() ? l.replicas() / l.shard : int64_t{1});
  a.set("optimizer.optimizer_cpu_offload", l.offload_optimizer);
  a.set("optimizer.use_precision_aware_optimizer", l.offload_optimizer);
  for (const char* state : {"main_grads", "main_params", "exp_avg", "exp_avg_sq"})
    a.set(fmt::format("optimizer.{}_dtype", state), "torch.float32");
  a.set("dist.use_tp_pp_dp_mapping", l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1);
  a.set("comm_overlap", "None");  // a recipe's object would override the fields above
}

// Patterns match ends of module names (src/megatron/bridge/peft/module_matcher.py).
std::string adapter_patterns(const Training& t) {
  constexpr const char* kPatterns[][2] = {
#include "generated/BridgeAdapters.inc"
  };
  std::vector<std::string> names;
  for (const auto& [target, module] : kPatterns)
    if (t.adapts(*enum_value<AdapterTarget>(target))) names.push_back(quoted(module));
  return fmt::format("[{}]", joined(names, ", "));
}

constexpr const char* kPretrained =
    "    config.checkpoint.pretrained_checkpoint = ...  # the weights that the adapters start from\n";

void set_ways_to_train(const Training& t, Assignments& a) {
  if (t.adapts())
    a.set("peft", fmt::format("LoRA(target_modules={}, dim={}, alpha={}, share_expert_adapters=False)",
                              adapter_patterns(t), t.adapter_rank, 2 * t.adapter_rank));
  if (t.optimizer == OptimizerKind::sgd) a.set("optimizer.optimizer", quoted("sgd"));
  if (t.optimizer == OptimizerKind::muon) a.set("optimizer.optimizer", quoted("muon"));
  if (t.deterministic) {
    a.set("model.deterministic_mode", true);
    a.set("model.cross_entropy_loss_fusion", false);  // the other fusion refuses it
  }
  if (t.offloaded.empty()) return;
  a.set("model.fine_grained_activation_offloading", true);
  const auto names =
      mapped<std::string>(t.offloaded, [](OffloadModule module) { return quoted(enum_name(module)); });
  a.set("model.offload_modules", fmt::format("[{}]", joined(names, ", ")));
}

// Numbers of a list are a tuple.
std::string python_expression(const models::Word& word, bool contrary) {
  if (word.value.is_null()) return "None";
  if (word.value.is_boolean()) return word.value.get<bool>() == contrary ? "False" : "True";
  if (word.value.is_array())
    return fmt::format("({})", fmt::join(word.value.get<std::vector<int64_t>>(), ", "));
  const std::string text = models::text_of(word.value);
  return word.value.is_string() && !word.bare ? quoted(text) : text;
}

std::string imports_text(const Plan& plan) {
  std::string text = "\nimport torch\n";
  if (plan.model.mlp().gated && plan.model.mlp().activation_limit)
    text += "from megatron.core.fusions.fused_bias_geglu import quick_gelu\n";
  const Layout& l = plan.layout;
  if (l.training->adapts()) text += "from megatron.bridge.peft.lora import LoRA\n";
  if (l.precision == Precision::fp32)
    text += "from megatron.bridge.training.mixed_precision import MixedPrecisionConfig\n";
  else
    text += "from megatron.bridge.training.mixed_precision import get_mixed_precision_config\n";
  return text;
}

// The fields of config.model that describe the model.
void set_model_fields(const Plan& plan, Assignments& a) {
  const models::Dialect& dialect = dialect_of("megatron-bridge");
  for (const models::Word& word : megatron_words(plan, "megatron-bridge")) {
    bool contrary = false;
    const std::string field = "model." + field_of(dialect, word, contrary);
    a.set(field, python_expression(word, contrary));
  }
}

}  // namespace

Exported export_megatron_bridge(const Plan& plan) {
  Exported exported;
  Assignments a;
  set_model_fields(plan, a);
  set_layout_fields(plan, a);
  set_training_fields(plan, a);
  set_precision_fields(plan.layout, a);
  set_ways_to_train(plan.layout.training, a);
  std::string body = a.text();
  set_connections(plan.layout, body);
  for (const auto& [name, value] : megatron_settings(plan.layout.training))
    body += fmt::format("    config.env_vars[{}] = {}\n", quoted(name), quoted(value));
  std::string facts;
  for (const std::string& fact : megatron_facts(plan)) facts += "\n" + comment_text(fact);
  const BridgeRecipe recipe = recipe_of(plan.model);
  const char* const pretrained = plan.layout.training->adapts() ? kPretrained : "";
  add_filled(plan, "mpt_layout.py",
             {{"facts", facts},
              {"family", recipe.family},
              {"recipe", recipe.name},
              {"imports", imports_text(plan)},
              {"body", body},
              {"pretrained", pretrained}},
             exported);
  add_trial(plan, "Megatron-Bridge 0.6.2", "bridge", {{"family", recipe.family}, {"recipe", recipe.name}},
            exported);
  add_megatron_needs(plan, exported);
  return exported;
}

}  // namespace mpt::frameworks
