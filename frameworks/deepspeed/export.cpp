// SPDX-License-Identifier: Apache-2.0

// DeepSpeed: keys of deepspeed/runtime/constants.py, runtime/zero/config.py and their neighbours at v0.19.5.

#include <algorithm>

#include "base/json.h"
#include "frameworks/export.h"
#include "frameworks/registry.h"

namespace mpt::frameworks {
namespace {

Json zero_optimization(const Layout& l, std::vector<std::string>& warnings) {
  Json zero{{"stage", l.zero}, {"overlap_comm", l.overlap_gradient_reduce}};
  if (l.zero == 0) return zero;
  zero["contiguous_gradients"] = true;
  zero["reduce_scatter"] = true;
  if (l.offload_optimizer) zero["offload_optimizer"] = {{"device", "cpu"}, {"pin_memory", true}};
  if (l.shard < l.replicas()) {
    if (l.zero == 3) {
      zero["mics_shard_size"] = l.shard;  // arXiv:2205.00119
    } else {
      warnings.push_back("states shared out over some of the replicas: DeepSpeed has that for ZeRO 3 only");
    }
  }
  return zero;
}

}  // namespace

Exported export_deepspeed(const Plan& plan) {
  Exported exported;
  const Layout& l = plan.layout;
  Json config{{"train_batch_size", plan.workload.global_batch},
              {"train_micro_batch_size_per_gpu", l.micro_batch},
              {"gradient_accumulation_steps", micro_batches(l, plan.workload)},
              {"gradient_clipping", 1.0},
              {"zero_optimization", zero_optimization(l, exported.warnings)}};
  if (l.precision == Precision::bf16 || is_narrow(l.precision)) config["bf16"] = {{"enabled", true}};
  if (l.precision == Precision::fp16) config["fp16"] = {{"enabled", true}};
  if (l.tensor > 1) config["tensor_parallel"] = {{"autotp_size", l.tensor}};
  const auto warn_if = [&](bool given, const char* text) {
    if (given) exported.warnings.emplace_back(text);
  };
  warn_if(is_narrow(l.precision),
          "products in 8 or 4 bits: they are the model's business (Transformer Engine)");
  warn_if(
      l.pipeline > 1,
      "pipeline stages are named in code: PipelineModule(num_stages, partition_method); DeepSpeed runs 1F1B");
  warn_if(l.pipeline > 1 && l.zero >= 2, "DeepSpeed's pipeline engine takes ZeRO 0 and 1 only");
  warn_if(l.context > 1, "context parallelism: sequence_parallel_size in code (Ulysses)");
  warn_if(l.sequence_parallel && l.tensor > 1, "sequence parallelism beside tensor parallelism is not in it");
  warn_if(l.expert > 1, "expert parallelism: MoE(ep_size) in code");
  warn_if(l.recompute != Recompute::none, "recompute: deepspeed.checkpointing in the model's code");
  exported.files.push_back({"deepspeed.json", config.dump(2) + "\n"});
  return exported;
}

}  // namespace mpt::frameworks
