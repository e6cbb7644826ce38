// SPDX-License-Identifier: Apache-2.0

// Megatron-LM: flags of megatron/training/arguments.py at core_v0.19.2, and a script that starts it with
// them.

#include "frameworks/megatron-core/export.h"

#include <fmt/ranges.h>

#include "frameworks/dialects.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

void add_exchange(const Plan& plan, std::map<std::string, Json>& given) {
  constexpr int64_t kManyExperts = 32;  // Megatron-LM requires scores in fp32 from this number on
  const MixtureOfExperts* const moe = plan.model.moe();
  if (moe == nullptr) return;
  const bool once = sends_tokens_once(plan);
  if (moe->experts >= kManyExperts || plan.layout.execution->traffic.deduplicates_dispatch)
    given["moe-router-dtype"] = "fp32";
  given["moe-token-dispatcher-type"] = once ? "flex" : "alltoall";
  if (once) given["moe-flex-dispatcher-backend"] = dispatch_backend(plan);
  given["overlap-moe-expert-parallel-comm"] = plan.layout.overlap_exchange;
  given["moe-grouped-gemm"] = true;
}

// One on each line.
class Arguments {
 public:
  void flag(const std::string& name) { lines_.push_back("--" + name); }
  void flag_if(bool given, const std::string& name) {
    if (given) flag(name);
  }
  template <class T>
  void value(const std::string& name, const T& value) {
    lines_.push_back(fmt::format("--{} {}", name, value));
  }
  std::string text() const { return fmt::format("{}\n", joined(lines_, "\n")); }

 private:
  std::vector<std::string> lines_;
};

// Numbers of a list are separated by commas.
std::string argument_text(const Json& value) {
  if (!value.is_array()) return models::text_of(value);
  return fmt::format("{}", fmt::join(value.get<std::vector<int64_t>>(), ","));
}

void add_model(const Plan& plan, Arguments& a) {
  for (const models::Word& word : megatron_words(plan, "megatron-core")) {
    if (word.usual) continue;
    word.value == Json(true) ? a.flag(word.name) : a.value(word.name, argument_text(word.value));
  }
}

void add_pipeline(const Plan& plan, Arguments& a) {
  const Layout& l = plan.layout;
  a.value("pipeline-model-parallel-size", l.pipeline);
  if (needs_stages(plan))
    a.value("pipeline-model-parallel-layout", megatron_stages(plan));
  else if (l.chunks > 1)
    a.value("num-virtual-stages-per-pipeline-rank", l.chunks);
  a.flag_if(!l.overlap_transfer, "no-overlap-p2p-communication");
}

void add_data_parallel(const Plan& plan, Arguments& a) {
  const Layout& l = plan.layout;
  a.flag_if(l.zero > 0, "use-distributed-optimizer");
  if (l.zero >= 2) {
    a.flag("use-megatron-fsdp");
    a.value("data-parallel-sharding-strategy", l.zero == 2 ? "optim_grads" : "optim_grads_params");
    a.value("ckpt-format", "fsdp_dtensor");
  }
  if (l.zero > 0 && l.shard < l.replicas())
    a.value("num-distributed-optimizer-instances", l.replicas() / l.shard);
  a.flag_if(l.overlap_gradient_reduce, "overlap-grad-reduce");
  a.flag_if(l.overlap_parameter_gather && l.zero > 0, "overlap-param-gather");
  if (l.offload_optimizer) {
    a.flag("optimizer-cpu-offload");
    a.flag("use-precision-aware-optimizer");  // the option above requires it
  }
}

void add_training(const Training& t, Arguments& a) {
  if (t.optimizer == OptimizerKind::sgd) a.value("optimizer", "sgd");
  if (t.optimizer == OptimizerKind::muon) a.value("optimizer", "muon");
  a.flag_if(t.bf16_gradients, "grad-reduce-in-bf16");
  a.flag_if(t.deterministic, "deterministic-mode");
  if (t.offloaded.empty()) return;
  a.flag("fine-grained-activation-offloading");
  const auto modules = mapped<std::string>(t.offloaded, enum_name<OffloadModule>);  // Megatron's own names
  a.value("offload-modules", joined(modules, " "));
}

void add_recompute(const Layout& l, Arguments& a) {
  const MegatronRecompute recompute = megatron_recompute(l);
  if (!recompute.granularity.empty()) a.value("recompute-granularity", recompute.granularity);
  if (!recompute.modules.empty()) a.value("recompute-modules", joined(recompute.modules, " "));
  if (!recompute.method.empty()) {
    a.value("recompute-method", recompute.method);
    a.value("recompute-num-layers", recompute.layers);
  }
}

void add_precision(const Layout& l, Arguments& a) {
  a.flag_if(l.precision == Precision::bf16 || is_narrow(l.precision), "bf16");
  a.flag_if(l.precision == Precision::fp16, "fp16");
  a.flag_if(l.precision == Precision::fp16 && gradient_element_bytes(l) == 4,
            "accumulate-allreduce-grads-in-fp32");  // in bf16 they always are
  if (l.precision == Precision::fp8) {
    a.value("fp8-format", "hybrid");
    a.value("fp8-recipe", "tensorwise");
  }
  if (l.precision == Precision::mxfp8) {
    a.value("fp8-format", "e4m3");
    a.value("fp8-recipe", "mxfp8");
    a.flag_if(head_in_fp8(l), "fp8-output-proj");
  }
  if (l.precision == Precision::nvfp4) {
    a.value("fp4-format", "e2m1");
    a.value("fp4-recipe", "nvfp4");
  }
}

void add_layout(const Plan& plan, Arguments& a) {
  const Layout& l = plan.layout;
  a.value("tensor-model-parallel-size", l.tensor);
  a.flag_if(l.sequence_parallel && l.tensor > 1, "sequence-parallel");
  a.flag_if(l.overlap_tensor, "tp-comm-overlap");
  add_pipeline(plan, a);
  a.value("context-parallel-size", l.context);
  if (l.context > 1) a.value("cp-comm-type", l.context_method == ContextMethod::ring ? "p2p" : "a2a");
  if (plan.model.moe() != nullptr) {
    a.value("expert-model-parallel-size", l.expert);
    a.value("expert-tensor-parallel-size", l.expert_split());
  }
  a.flag_if(l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1, "use-tp-pp-dp-mapping");
  a.flag_if(counts_loss_by_token(plan), "calculate-per-token-loss");
  a.value("micro-batch-size", l.micro_batch);
  a.value("global-batch-size", plan.workload.global_batch);
  add_data_parallel(plan, a);
  add_recompute(l, a);
  add_training(l.training, a);
  add_precision(l, a);
}

// How many queues of launches a GPU gets (megatron/training/arguments.py).
const char* connections(const Layout& l) {
  if (l.zero > 1) return "# Megatron-FSDP refuses one queue of launches.\nunset CUDA_DEVICE_MAX_CONNECTIONS";
  if (l.overlap_exchange && l.tensor == 1 && l.context == 1)
    return "# Overlap of the exchange with experts needs several queues of launches.\n"
           "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-32}";
  return "# Gradient reduction and tensor-parallel overlap rely on the order in which kernels were "
         "launched.\n"
         "export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}";
}

std::string settings_text(const Training& t) {
  return sum_of<std::string>(megatron_settings(t), [](const auto& setting) {
    return fmt::format("export {}={}\n", setting.first, setting.second);
  });
}

std::string facts_text(const Plan& plan) {
  std::vector<std::string> facts = megatron_facts(plan);
  if (attention_in_fp8(plan.layout))
    facts.emplace_back(
        "Attention in fp8 has no flag: set fp8_dot_product_attention of its TransformerConfig.");
  return sum_of<std::string>(facts, [](const std::string& fact) { return "# " + comment_text(fact) + "\n"; });
}

std::string launch_script(const Plan& plan) {
  return filled("run_megatron.sh", plan,
                {{"facts", facts_text(plan)},
                 {"connections", connections(plan.layout)},
                 {"settings", settings_text(plan.layout.training)}});
}

}  // namespace

Exported export_megatron_core(const Plan& plan) {
  Exported exported;
  Arguments arguments;
  add_model(plan, arguments);
  add_layout(plan, arguments);
  exported.files = {{"megatron_args.txt", arguments.text()}, {"run_megatron.sh", launch_script(plan), true}};
  add_megatron_needs(plan, exported);
  return exported;
}

std::vector<models::Word> megatron_words(const Plan& plan, const std::string& framework) {
  const double dropout = plan.layout.execution->kernels.dropout ? 0.1 : 0.0;
  std::map<std::string, Json> given{
      {"seq-length", plan.workload.sequence}, {"attention-dropout", dropout}, {"hidden-dropout", dropout}};
  add_exchange(plan, given);
  models::Values values = models::values_of(plan.model);
  values[models::Value::max_positions] = std::max(plan.model.max_positions, plan.workload.sequence);
  return models::write(dialect_of(framework), values, given).words;
}

}  // namespace mpt::frameworks
