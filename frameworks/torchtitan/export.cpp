// SPDX-License-Identifier: Apache-2.0

// torchtitan: a function that returns its Trainer.Config, as `--module mpt_torchtitan --config mpt_plan`
// takes it; fields of torchtitan/config/configs.py at v0.3.0. Its schedules are those of
// torch.distributed.pipelining; any other goes there as a CSV file, one row of actions per pipeline rank.

#include <fmt/format.h>

#include <map>

#include "base/json.h"
#include "core/schedule_catalog.h"
#include "frameworks/export.h"
#include "frameworks/pytorch/trainer_file.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/registry.h"
#include "frameworks/torchtitan/models.h"

namespace mpt::frameworks {
namespace {

// What PyTorch calls a schedule; a CSV file then says the rest. V-shaped ones place stages as ZBVZeroBubble.
struct TitanSchedule {
  const char* name;
  bool exact;
};
TitanSchedule torch_schedule(const Layout& l) {
  static const std::map<std::string, TitanSchedule> schedules{{"gpipe", {"GPipe", true}},
                                                              {"1f1b", {"1F1B", true}},
                                                              {"interleaved", {"Interleaved1F1B", true}},
                                                              {"zb-v", {"ZBVZeroBubble", false}},
                                                              {"v-half", {"ZBVZeroBubble", false}},
                                                              {"v-min", {"ZBVZeroBubble", false}},
                                                              {"dualpipe-v", {"DualPipeV", true}}};
  const auto found = schedules.find(l.schedule);
  if (found != schedules.end()) return found->second;
  return {l.chunks > 1 ? "Interleaved1F1B" : "1F1B", false};
}

std::string csv_of(const Plan& plan) {
  std::string text;
  for (const std::string& line : schedule_lines(plan, ',')) text += line + "\n";
  return text;
}

// "    name=value,\n" of a call.
std::string titan_argument(const std::string& name, const Json& value) {
  return fmt::format("            {}={},\n", name, python_text(value));
}

// How the converters of this precision are called; "" for 16 and 32 bits.
const char* titan_product(Precision precision) {
  switch (precision) {
    case Precision::fp8:
      return "Float8";
    case Precision::mxfp8:
      return "MXFP8";
    case Precision::nvfp4:
      return "NVFP4";
    default:
      return "";
  }
}

// Converters of products in 8 and 4 bits: attention and dense layers, and the experts' grouped ones.
std::string titan_converters(const Plan& plan) {
  const Layout& l = plan.layout;
  if (!is_narrow(l.precision)) return "";
  const bool compiled = l.execution.kernels.elementwise == ElementwiseKernels::compiled || l.overlap_tensor;
  const char* kind = titan_product(l.precision);
  const std::string common = fmt::format("model_compile_enabled={}", python_text(compiled));
  const std::string linear =
      l.precision == Precision::fp8
          ? (head_in_fp8(l) ? "" : "filter_fqns=[\"lm_head\"], ") + common
          : fmt::format("fqns=[\"layers\"{}], ", head_in_fp8(l) ? ", \"lm_head\"" : "") + common;
  std::string text = fmt::format("{}LinearConverter.Config({})", kind, linear);
  if (plan.model.moe() != nullptr)
    text += fmt::format(", {}GroupedExpertsConverter.Config({})", kind, common);
  return fmt::format("converters=[{}]", text);
}

std::string titan_training(const Plan& plan) {
  const Layout& l = plan.layout;
  return titan_argument("local_batch_size",
                        l.pipeline > 1 ? plan.workload.global_batch / l.data : l.micro_batch) +
         titan_argument("global_batch_size", plan.workload.global_batch) +
         titan_argument("seq_len", plan.workload.sequence) +
         titan_argument("mixed_precision_param", l.precision == Precision::fp32 ? "float32" : "bfloat16") +
         titan_argument("disable_cuda_graphs", !l.execution.kernels.graphs);
}

std::string titan_pipeline(const Plan& plan) {
  const Layout& l = plan.layout;
  if (l.pipeline == 1) return titan_argument("pipeline_parallel_degree", 1);
  const TitanSchedule schedule = torch_schedule(l);
  std::string text = titan_argument("pipeline_parallel_degree", l.pipeline) +
                     titan_argument("pipeline_parallel_schedule", schedule.name);
  // Relative paths would start at the folder in which torchtitan runs.
  if (!schedule.exact) {
    text += "            # The name above only says which stages a rank has.\n";
    text += "            pipeline_parallel_schedule_csv=os.path.join(HERE, \"schedule.csv\"),\n";
  }
  text += titan_argument("pipeline_parallel_microbatch_size", l.micro_batch);
  text += "            module_fqns_per_model_part=[\n";
  for (const Json stage : stage_modules(plan, {"tok_embeddings", "layers.", "norm"}))
    text += fmt::format("                {},\n", python_text(stage));
  return text + "            ],\n";
}

// Of schedules that are a file of their own.
std::string schedule_constant(const Layout& l) {
  if (l.pipeline == 1 || torch_schedule(l).exact) return "";
  return fmt::format("SCHEDULE = \"{}\"  # of schedule.csv\n", l.schedule);
}

std::string titan_parallelism(const Plan& plan) {
  const Layout& l = plan.layout;
  const int64_t shard = sharing_data_ranks(l);
  std::string text = titan_argument("data_parallel_replicate_degree", l.data / shard) +
                     titan_argument("data_parallel_shard_degree", shard) +
                     titan_argument("fsdp_reshard_after_forward", l.zero == 3 ? "always" : "never") +
                     titan_argument("tensor_parallel_degree", l.tensor) +
                     titan_argument("context_parallel_degree", l.context);
  if (plan.model.moe() != nullptr) text += titan_argument("expert_parallel_degree", l.expert);
  return text + titan_pipeline(plan);
}

// All that the file may need: imports of names that it does not use are left out.
constexpr const char* kTitanImports = R"py(import os
from torchtitan.components.loss import ChunkedLossWrapper, CrossEntropyLoss
from torchtitan.components.quantization import Float8GroupedExpertsConverter, Float8LinearConverter
from torchtitan.components.quantization import MXFP8GroupedExpertsConverter, MXFP8LinearConverter
from torchtitan.components.quantization import NVFP4GroupedExpertsConverter, NVFP4LinearConverter
from torchtitan.config import CompileConfig, ParallelismConfig, TrainingConfig
from torchtitan.distributed.activation_checkpoint import FullAC
from torchtitan.models.common.config_utils import decoder_vocab_size
from torchtitan.models.{0} import make_mla_attention_config, model_registry
from torchtitan.models.{0}.model import {1}Model as Model, {1}TransformerBlock as Block
from torchtitan.trainer import Trainer
# body
HERE = os.path.dirname(os.path.abspath(__file__))
)py";

std::string titan_model_call(const Plan& plan) {
  const std::string converters = titan_converters(plan);
  const TitanModel* known = titan_model(plan.model);
  if (known == nullptr) return fmt::format("build_model({})", converters);
  return fmt::format("model_registry(\"{}\"{}{})", known->flavor, converters.empty() ? "" : ", ", converters);
}

std::string titan_function(const Plan& plan) {
  const Layout& l = plan.layout;
  const bool compiled = l.execution.kernels.elementwise == ElementwiseKernels::compiled || l.overlap_tensor;
  return fmt::format(R"py(def mpt_plan() -> Trainer.Config:
    """The plan's model and layout. Data, optimizer and checkpoints are yours to add."""
    model_spec = {model}
    return Trainer.Config(
        model_spec=model_spec,
        loss=ChunkedLossWrapper.Config(
            loss_fn=CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))),
        training=TrainingConfig(
{training}        ),
        parallelism=ParallelismConfig(
{parallelism}        ),
        compile=CompileConfig(enable={compiled}, enable_async_tensor_parallel={async}),
        activation_checkpoint={recompute},
    )
)py",
                     fmt::arg("model", titan_model_call(plan)), fmt::arg("training", titan_training(plan)),
                     fmt::arg("parallelism", titan_parallelism(plan)),
                     fmt::arg("compiled", python_text(compiled)),
                     fmt::arg("async", python_text(l.overlap_tensor)),
                     fmt::arg("recompute", l.recompute == Recompute::full ? "FullAC.Config()" : "None"));
}

std::string titan_script(const Plan& plan) {
  return fmt::format(R"sh(#!/usr/bin/env bash
# {}. For torchtitan 0.3.0.
# Run it on every node with NODE_RANK (or under Slurm) and MASTER_ADDR set. More options go to torchtitan.
set -euo pipefail
here=$(cd "$(dirname "${{BASH_SOURCE[0]}}")" && pwd)
node=${{NODE_RANK:-${{SLURM_NODEID:-${{JOB_COMPLETION_INDEX:-0}}}}}}
export PYTHONPATH="$here${{PYTHONPATH:+:$PYTHONPATH}}"
{}exec torchrun --nproc-per-node {} --nnodes {} --node-rank "$node" \
  --master-addr "${{MASTER_ADDR:-127.0.0.1}}" --master-port "${{MASTER_PORT:-29500}}" \
  -m torchtitan.train --module mpt_torchtitan --config mpt_plan "$@"
)sh",
                     export_title(plan), processes_of_node(plan, "$node"), processes_word(plan),
                     node_count(plan));
}

}  // namespace

Exported export_torchtitan(const Plan& plan) {
  Exported exported;
  const TitanModel* known = titan_model(plan.model);
  const TitanFamily& family = titan_family(plan.model);
  std::vector<std::string> parts{
      fmt::format(kTitanImports, known != nullptr ? known->name : family.name, family.classes) +
      schedule_constant(plan.layout)};
  if (known == nullptr) parts.push_back(titan_builder());
  parts.push_back("# body\n" + titan_function(plan));
  const TrainerConditions conditions{{"qwen3", std::string_view(family.name) == "qwen3"},
                                     {"latent", plan.model.attention().latent.has_value()}};
  const std::string head = fmt::format("\"\"\"{}. For torchtitan 0.3.0.\"\"\"\n", export_title(plan));
  exported.files.push_back(
      {"mpt_torchtitan.py", trainer_file(parts, conditions, head, titan_sizes(plan.model))});
  exported.files.push_back({"run_torchtitan.sh", titan_script(plan), true});
  if (plan.layout.pipeline > 1) exported.files.push_back({"schedule.csv", csv_of(plan)});
  return exported;
}

}  // namespace mpt::frameworks
