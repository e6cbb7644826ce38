// SPDX-License-Identifier: Apache-2.0

// Reads DeepSpeed's configuration back. Facts that are code, not configuration, come from the exported
// module, if there is one.

#include "frameworks/deepspeed/deepspeed.h"

#include "base/error.h"
#include "frameworks/asked.h"
#include "frameworks/dialects.h"
#include "frameworks/framework.h"
#include "frameworks/readers/python_file.h"
#include "frameworks/registry.h"
#include "frameworks/transformers/hugging_face.h"

namespace mpt::frameworks {
namespace {

// A number; 0 for "auto", which the Trainer fills in.
int64_t number_or_auto(const Settings& config, const std::string& key, const FieldRule& rule) {
  const Json* value = config.find(key);
  return value != nullptr && *value == "auto" ? 0 : config.number(key, rule, 0);
}

bool flag_or_auto(const Settings& config, const std::string& key, bool otherwise) {
  const Json* value = config.find(key);
  return value != nullptr && *value == "auto" ? otherwise : config.flag(key, otherwise);
}

void set_deepspeed_batch(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  const auto micro = number_or_auto(config, "train_micro_batch_size_per_gpu", rule_of(&Layout::micro_batch));
  const int64_t batch = number_or_auto(config, "train_batch_size", rule_of(&Workload::global_batch));
  const auto steps = number_or_auto(config, "gradient_accumulation_steps", rule_of(&Workload::global_batch));
  l.micro_batch = std::max<int64_t>(1, micro);
  in.workload.global_batch = batch;
  l.data = 0;  // unless the file has a batch, the rank count decides
  in.accumulated = std::max<int64_t>(1, steps);
  if (batch == 0 || micro == 0 || steps == 0 || batch % (micro * steps) != 0) return;
  l.data = batch / (micro * steps);
  if (l.tensor > 1) return;
  in.ranks = l.data * l.context * l.pipeline;
  in.notes.push_back(
      fmt::format("train_batch_size is for {} ranks: with others, DeepSpeed refuses it", in.ranks));
}

// Outside these bounds weights stay whole on each GPU, buffers grow, or states stay on the GPU.
constexpr const char* kSizes[][3] = {
#include "generated/DeepSpeedSizes.inc"
};

void set_deepspeed_zero(const Settings& config, Imported& in) {
  Layout& l = in.layout;
  l.zero = config.number("zero_optimization.stage", rule_of(&Layout::zero), 0);
  l.overlap_gradient_reduce = flag_or_auto(config, "zero_optimization.overlap_comm", l.zero == 3);
  l.overlap_parameter_gather = true;
  if (!config.flag("zero_optimization.use_multi_rank_bucket_allreduce", true))
    in.execution.emplace_back("all_reduces_gradients=false");
  const std::string device = config.text("zero_optimization.offload_optimizer.device", "none");
  l.offload_optimizer = device == "cpu";
  const std::string weights = config.text("zero_optimization.offload_param.device", "none");
  if (weights == "cpu" && l.offload_optimizer)
    in.execution.emplace_back("offloads_weights=true");
  else if (weights != "none")
    in.notes.push_back("not taken over: zero_optimization.offload_param.device");
  for (const auto& [key, least, most] : kSizes) {
    const Json* const value = config.find(key);
    if (value != nullptr && value->is_number() &&
        (*value < *number_of<double>(least) || *value > *number_of<double>(most)))
      in.unknown.emplace_back(key);
  }
  if (device == "nvme") in.notes.push_back("optimizer state on NVMe is not in a plan");
  note_left_out(config, "deepspeed", in);
}

// "auto" means the Trainer's precision.
Precision deepspeed_precision(const Settings& config, std::optional<Precision> trainer,
                              std::vector<std::string>& notes) {
  if (flag_or_auto(config, "bf16.enabled", false)) return Precision::bf16;
  if (flag_or_auto(config, "fp16.enabled", false)) return Precision::fp16;
  const Json *const bf16 = config.find("bf16.enabled"), *const fp16 = config.find("fp16.enabled");
  if ((bf16 == nullptr || *bf16 != "auto") && (fp16 == nullptr || *fp16 != "auto")) return Precision::fp32;
  if (!trainer) notes.emplace_back("bf16.enabled is \"auto\", which the Trainer decides: bf16 is taken");
  return trainer.value_or(Precision::bf16);
}

// Lists the keys that DeepSpeed does not read, and sets its reason to refuse the file. Throws
// FrameworkRefusal.
void judge_deepspeed(const Settings& config, const DeepSpeedRun& run, Imported& in) {
  const Asked& asked = *asked_of(framework_named("deepspeed", ""));
  GivenSettings given;
  asked.add_given(config.all(), "", config.file(), given);
  const bool no_batch = !config.has("train_batch_size") && !config.has("train_micro_batch_size_per_gpu");
  for (const char* key :
       {"train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"})
    if ((run.fills || no_batch) && !config.has(key)) given.values[key] = std::nullopt;
  given.values["stages"] = run.pipeline;
  if (const Json* const type = config.find("optimizer.type")) given.values["optimizer.type"] = *type;
  if (const auto context = given.values.find("sequence_parallel_size"); run.ranks > 0 && run.pipeline == 1)
    given.values["world_size"] =
        computed(run.ranks, "/", context == given.values.end() ? Json(1) : context->second.value_or(nullptr));
  in.refused = asked.refusal(given.values, true, config.file());
  // Files have some names of DeepSpeed's objects that nothing reads: comms_config, monitor_config.
  for (const std::string& key : given.unknown)
    if (!contains(dialect_of("deepspeed").not_taken_over, key)) in.unknown.push_back(key);
}

void read_deepspeed_layout(const Settings& config, const DeepSpeedRun& run, Imported& in) {
  Layout& l = in.layout;
  l.pipeline = run.pipeline;
  l.context = config.number("sequence_parallel_size", rule_of(&Layout::context), 1);
  l.context_method = l.context > 1 ? ContextMethod::all_to_all : ContextMethod::ring;
  l.tensor = std::max<int64_t>(1, config.number("tensor_parallel.autotp_size", rule_of(&Layout::tensor), 1));
  if (flag_or_auto(config, "expert_parallel.enabled", false))
    l.expert = config.number("expert_parallel.autoep_size", rule_of(&Layout::expert), 1);
  set_whole_experts(l);
  set_deepspeed_batch(config, in);
  set_deepspeed_zero(config, in);
  if (config.has("optimizer.type")) set_optimizer(in, config.text("optimizer.type", ""));
  // findings/deepspeed_clips_what_muon_has_made_of_gradients.sh
  if (l.zero > 0 && l.training->optimizer == OptimizerKind::muon &&
      config.all().value("gradient_clipping", Json(1.0)) != 0)
    in.notes.emplace_back("gradient_clipping (1.0 by default) shrinks Muon's updates on ZeRO: set it to 0");
  l.precision = deepspeed_precision(config, run.trainer, in.notes);
  if (config.has("activation_checkpointing"))
    in.notes.emplace_back("activation_checkpointing recomputes where the model's code calls it: not priced");
  // It sums micro-batches in the weights' type by default (deepspeed/runtime/engine.py:1806).
  if (l.precision != Precision::fp32 && config.text("data_types.grad_accum_dtype", "") != "fp32")
    in.execution.emplace_back("gradient_bytes=2");
}

}  // namespace

Imported read_deepspeed(const Settings& config, const DeepSpeedRun& run) {
  Imported in;
  judge_deepspeed(config, run, in);
  try {
    read_deepspeed_layout(config, run, in);
  } catch (const UserError&) {  // DeepSpeed's own reason is more exact
    if (in.refused) throw FrameworkRefusal(*in.refused);
    throw;
  }
  return in;
}

Imported import_deepspeed(const std::filesystem::path& file) {
  const Json all = load_json(file, kMostImportedBytes);
  const Settings config(all, file.string());
  const std::filesystem::path module = file.parent_path() / "mpt_deepspeed.py";
  const Settings code(finds_file(module) ? read_python(module).values : Json::object(), module.string());
  Imported in = read_deepspeed(config, {.pipeline = code.number("STAGES", rule_of(&Layout::pipeline), 1)});
  if (all_of(all.items(), [&](const auto& item) { return contains(in.unknown, item.key()); }))
    refuse_input(file.string(), "no key of DeepSpeed's",
                 "its configuration, such as one with zero_optimization",
                 "name the program that reads the file with --from");
  if (number_or_auto(config, "train_micro_batch_size_per_gpu", rule_of(&Layout::micro_batch)) == 0)
    in.notes.emplace_back("train_micro_batch_size_per_gpu is left open: 1 is taken");
  if (code.flag("RECOMPUTE", false)) in.layout.recompute = Recompute::full;
  in.workload.sequence = code.number("SEQUENCE", rule_of(&Workload::sequence), 2048);
  if (!code.has("SEQUENCE"))
    in.notes.push_back(in.length_note = "the file has no sequence length: 2048 is taken without --seq");
  set_hugging_face_model(in, code.text("MODEL", ""), file.parent_path());
  set_stages(in, {}, module.string());
  check_imported(in, file.string());
  return in;
}

}  // namespace mpt::frameworks
