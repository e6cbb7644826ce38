// SPDX-License-Identifier: Apache-2.0

// Megatron-Bridge: fields of its ConfigContainer at v0.6.0 (src/megatron/bridge/training/config.py), whose
// parts come from Megatron-LM core_v0.19.0.

#include <fmt/format.h>

#include "frameworks/export.h"
#include "frameworks/megatron-core/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

const char* python(bool value) { return value ? "True" : "False"; }

class Assignments {
 public:
  void set(const std::string& field, const std::string& value) {
    text_ += fmt::format("    config.{} = {}\n", field, value);
  }
  void set(const std::string& field, const char* value) { set(field, std::string(value)); }
  void set(const std::string& field, int64_t value) { set(field, std::to_string(value)); }
  void set(const std::string& field, bool value) { set(field, std::string(python(value))); }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

std::string quoted(const std::string& text) { return fmt::format("\"{}\"", text); }

void add_model(const Plan& plan, Assignments& a, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  a.set("model.tensor_model_parallel_size", l.tensor);
  a.set("model.sequence_parallel", l.sequence_parallel && l.tensor > 1);
  a.set("model.pipeline_model_parallel_size", l.pipeline);
  if (l.chunks > 1) {
    a.set("model.virtual_pipeline_model_parallel_size", l.chunks);
  } else {
    a.set("model.virtual_pipeline_model_parallel_size", "None");
  }
  if (!stages_are_even(l)) a.set("model.pipeline_model_parallel_layout", quoted(megatron_stages(plan)));
  a.set("model.context_parallel_size", l.context);
  if (l.context > 1)
    a.set("model.cp_comm_type", quoted(l.context_method == ContextMethod::ring ? "p2p" : "a2a"));
  if (plan.model.moe) {
    a.set("model.expert_model_parallel_size", l.expert);
    a.set("model.expert_tensor_parallel_size", l.expert_split());
    a.set("model.overlap_moe_expert_parallel_comm", l.overlap_exchange);
    if (l.execution.deduplicates_dispatch) {
      a.set("model.moe_token_dispatcher_type", quoted("flex"));
      a.set("model.moe_flex_dispatcher_backend", quoted("deepep"));
    }
  }
  const MegatronRecompute recompute = megatron_recompute(plan, warnings);
  const auto or_none = [](const std::string& text) { return text.empty() ? "None" : quoted(text); };
  a.set("model.recompute_granularity", or_none(recompute.granularity));
  if (!recompute.modules.empty())
    a.set("model.recompute_modules", fmt::format("[\"{}\"]", fmt::join(recompute.modules, "\", \"")));
  a.set("model.recompute_method", or_none(recompute.method));
  a.set("model.recompute_num_layers", recompute.layers > 0 ? std::to_string(recompute.layers) : "None");
  a.set("model.seq_length", plan.workload.sequence);
  a.set("dataset.seq_length", plan.workload.sequence);
}

// A recipe's name alone has no fields to set.
std::string precision_recipe(const Layout& l, const char* name) {
  return attention_in_fp8(l) ? fmt::format("get_mixed_precision_config({})", quoted(name)) : quoted(name);
}

void add_precision(const Layout& l, Assignments& a, std::vector<std::string>& warnings) {
  if (head_in_fp8(l) && l.precision == Precision::mxfp8) a.set("model.fp8_output_proj", true);
  switch (l.precision) {
    case Precision::bf16:
      a.set("mixed_precision", quoted("bf16_mixed"));
      break;
    case Precision::fp16:
      a.set("mixed_precision", quoted("fp16_mixed"));
      break;
    case Precision::fp8:
      a.set("mixed_precision", precision_recipe(l, "bf16_with_fp8_current_scaling_mixed"));
      break;
    case Precision::mxfp8:
      a.set("mixed_precision", precision_recipe(l, "bf16_with_mxfp8_mixed"));
      break;
    case Precision::nvfp4:
      a.set("mixed_precision", precision_recipe(l, "bf16_with_nvfp4_mixed"));
      break;
    case Precision::fp32:
      a.set("mixed_precision", "None");
      warnings.push_back("fp32: check that the recipe's own dtypes agree");
  }
  if (attention_in_fp8(l)) a.set("mixed_precision.fp8_dot_product_attention", true);
}

void add_training(const Plan& plan, Assignments& a, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  a.set("train.micro_batch_size", l.micro_batch);
  a.set("train.global_batch_size", plan.workload.global_batch);
  a.set("ddp.use_distributed_optimizer", l.zero > 0);
  a.set("optimizer.use_distributed_optimizer", l.zero > 0);
  a.set("ddp.overlap_grad_reduce", l.overlap_gradient_reduce && l.replicas() > 1);
  a.set("ddp.overlap_param_gather", l.overlap_parameter_gather && l.zero > 0);
  if (l.zero >= 2) {
    a.set("ddp.use_megatron_fsdp", true);
    a.set("ddp.data_parallel_sharding_strategy", quoted(l.zero == 2 ? "optim_grads" : "optim_grads_params"));
    a.set("checkpoint.ckpt_format", quoted("fsdp_dtensor"));
  }
  if (l.zero > 0 && l.shard < l.replicas())
    a.set("ddp.num_distributed_optimizer_instances", l.replicas() / l.shard);
  if (l.offload_optimizer) a.set("optimizer.optimizer_cpu_offload", true);
  a.set("model.tp_comm_overlap", l.overlap_tensor);
  a.set("model.overlap_p2p_comm", l.overlap_transfer && l.chunks > 1);
  a.set("dist.use_tp_pp_dp_mapping", l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1);
  add_precision(l, a, warnings);
}

}  // namespace

Exported export_megatron_bridge(const Plan& plan) {
  Exported exported;
  Assignments a;
  add_model(plan, a, exported.warnings);
  add_training(plan, a, exported.warnings);
  add_megatron_warnings(plan, exported.warnings);
  const char* imports =
      attention_in_fp8(plan.layout)
          ? "\nfrom megatron.bridge.training.mixed_precision import get_mixed_precision_config\n"
          : "";
  exported.files.push_back({"mpt_layout.py", fmt::format(R"text("""{}.

Megatron-Bridge v0.6.0: take the recipe of your model, then the plan's layout:

    from megatron.bridge.recipes.llama.llama3 import llama3_70b_pretrain_config
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from mpt_layout import apply

    pretrain(apply(llama3_70b_pretrain_config()), forward_step)
"""
{}

def apply(config):
    """Changes a ConfigContainer to the plan's layout, and returns it."""
{}    return config
)text",
                                                         export_title(plan), imports, a.text())});
  return exported;
}

}  // namespace mpt::frameworks
