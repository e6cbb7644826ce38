// SPDX-License-Identifier: Apache-2.0

// torchtitan: a function that returns its Trainer.Config, for `--module mpt_torchtitan --config mpt_plan`;
// fields of torchtitan/config/configs.py at v0.3.0. Its schedules are those of torch.distributed.pipelining.
// Any other schedule is a CSV file with one row of actions per pipeline rank.

#include <numeric>

#include "base/json.h"
#include "core/schedule_catalog.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/pytorch/trainer_file.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "frameworks/torchtitan/models.h"

namespace mpt::frameworks {
namespace {

// PyTorch's name of a schedule. Without one: a class with the same placement of stages, and a CSV file has
// the actions.
std::string torch_schedule(const Layout& l) {
  if (std::string own = torch_class_of(l.schedule); !own.empty()) return own;
  const int ranks = int(l.pipeline), chunks = int(l.chunks);
  const bool in_turn =
      find_schedule(l.schedule, "plan").placement(ranks, chunks) == round_robin_placement(ranks, chunks);
  return torch_class_of(!in_turn ? "zb-v" : chunks > 1 ? "interleaved" : "1f1b");
}

bool runs_from_csv(const Layout& l) {
  return l.pipeline > 1 && needs_rows(*find_framework("torchtitan"), l.schedule);
}

// "    name=value,\n" of a call.
std::string titan_argument(const std::string& name, const Json& value) {
  return fmt::format("            {}={},\n", name, python_text(value));
}

// The name of the converters for this precision; "" for 16 and 32 bits.
const char* titan_product(Precision precision) {
  return precision == Precision::fp8     ? "Float8"
         : precision == Precision::mxfp8 ? "MXFP8"
         : precision == Precision::nvfp4 ? "NVFP4"
                                         : "";
}

// Converters of products in 8 and 4 bits: attention and dense layers, and the experts' grouped ones.
std::string titan_converters(const Plan& plan) {
  const Layout& l = plan.layout;
  if (!is_narrow(l.precision)) return "";
  const bool compiled = l.execution->kernels.elementwise == ElementwiseKernels::compiled || l.overlap_tensor;
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
         titan_argument("disable_cuda_graphs", !l.execution->kernels.graphs) +
         (l.offload_optimizer ? titan_argument("enable_cpu_offload", true) : "");
}

std::string titan_pipeline(const Plan& plan) {
  const Layout& l = plan.layout;
  if (l.pipeline == 1) return titan_argument("pipeline_parallel_degree", 1);
  std::string text = titan_argument("pipeline_parallel_degree", l.pipeline) +
                     titan_argument("pipeline_parallel_schedule", torch_schedule(l));
  // Relative paths would start at torchtitan's working directory.
  if (runs_from_csv(l)) {
    text += "            # The name above only says which stages a rank has.\n";
    text += "            pipeline_parallel_schedule_csv=os.path.join(HERE, \"schedule.csv\"),\n";
  }
  text += titan_argument("pipeline_parallel_microbatch_size", l.micro_batch);
  text += "            module_fqns_per_model_part=[\n";
  for (const Json stage : stage_modules(plan, {"tok_embeddings", "layers.", "norm"}))
    text += fmt::format("                {},\n", python_text(stage));
  return text + "            ],\n";
}

std::string titan_parallelism(const Plan& plan) {
  const Layout& l = plan.layout;
  const int64_t shard = sharing_data_ranks(l);
  std::string text = titan_argument("data_parallel_replicate_degree", l.data / shard) +
                     titan_argument("data_parallel_shard_degree", shard) +
                     titan_argument("fsdp_reshard_after_forward", l.zero == 3 ? "always" : "never") +
                     titan_argument("tensor_parallel_degree", l.tensor) +
                     titan_argument("context_parallel_degree", l.context);
  if (l.tensor > 1 && !l.sequence_parallel) text += titan_argument("enable_sequence_parallel", false);
  if (plan.model.moe() != nullptr) text += titan_argument("expert_parallel_degree", l.expert);
  return text + titan_pipeline(plan);
}

// All imports that the file may need: unused names are left out later.
std::string titan_model_call(const Plan& plan) {
  const std::string converters = titan_converters(plan);
  const TitanModel* known = titan_model(plan.model);
  if (known == nullptr) return fmt::format("build_model({})", converters);
  return fmt::format("model_registry(\"{}\"{}{})", known->flavor, converters.empty() ? "" : ", ", converters);
}

std::string titan_function(const Plan& plan) {
  const Layout& l = plan.layout;
  const TitanModel* known = titan_model(plan.model);
  const TitanFamily& family = titan_family(plan.model);
  const std::string loss = "CrossEntropyLoss.Config(global_vocab_size=decoder_vocab_size(model_spec))";
  const bool chunked = l.execution->kernels.loss == LossKernel::chunked;
  // Chunks are equal parts of a rank's sequence (torchtitan/components/loss.py).
  const int64_t chunks = std::gcd(l.execution->kernels.loss_chunks, plan.workload.sequence / l.context);
  const std::string cut = chunked && chunks < 8 ? fmt::format("num_chunks={}, ", chunks) : "";
  const bool compiled = l.execution->kernels.elementwise == ElementwiseKernels::compiled || l.overlap_tensor;
  return filled("mpt_torchtitan.py", plan,
                {{"family", known != nullptr ? known->name : family.name},
                 {"classes", family.classes},
                 {"schedule",
                  runs_from_csv(l) ? fmt::format("SCHEDULE = \"{}\"  # of schedule.csv\n", l.schedule) : ""},
                 {"loss", chunked ? fmt::format("ChunkedLossWrapper.Config({}loss_fn={})", cut, loss) : loss},
                 {"model", titan_model_call(plan)},
                 {"training", titan_training(plan)},
                 {"parallelism", titan_parallelism(plan)},
                 {"compiled", python_text(compiled)},
                 {"async", python_text(l.overlap_tensor)},
                 {"recompute", l.recompute == Recompute::full        ? "FullAC.Config()"
                               : l.recompute == Recompute::selective ? "SelectiveAC.Config()"
                                                                     : "None"}});
}

}  // namespace

Exported export_torchtitan(const Plan& plan) {
  Exported exported;
  std::vector<std::string> parts;
  if (titan_model(plan.model) == nullptr) parts.push_back(template_text("build_model.py"));
  parts.push_back(titan_function(plan));
  const TrainerConditions conditions{{"qwen3", std::string_view(titan_family(plan.model).name) == "qwen3"},
                                     {"latent", plan.model.attention().latent.has_value()}};
  const std::string head = fmt::format("\"\"\"{}. For torchtitan 0.3.0.\"\"\"\n", export_title(plan));
  exported.files.push_back(
      {"mpt_torchtitan.py", trainer_file(parts, conditions, head, titan_sizes(plan.model))});
  add_filled(plan, "mpt_titan_trial.py", {}, exported);
  add_filled(plan, "run_torchtitan.sh", {}, exported);
  if (plan.layout.pipeline > 1)
    exported.files.push_back({"schedule.csv", fmt::format("{}\n", joined(schedule_lines(plan, ','), "\n"))});
  // models/common/attention.py:129-135: this model's default attention supports sequences of varying lengths.
  add_sentences({{plan.model.type == "gpt_oss",
                  "FlashAttention 3 on Hopper (module flash_attn_interface), FlashAttention 4 on Blackwell "
                  "(module flash_attn.cute)"}},
                exported.needs);
  return exported;
}

}  // namespace mpt::frameworks
