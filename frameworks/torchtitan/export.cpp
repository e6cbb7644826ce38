// SPDX-License-Identifier: Apache-2.0

// torchtitan: keys of torchtitan/config/job_config.py at v0.2.2. Its schedules are those of
// torch.distributed.pipelining; any other goes there as a CSV file, one row of actions per pipeline rank.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/schedule_catalog.h"
#include "frameworks/export.h"
#include "frameworks/registry.h"
#include "frameworks/supports.h"
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

char letter(ActionKind kind) {
  switch (kind) {
    case ActionKind::forward:
      return 'F';
    case ActionKind::backward:
      return 'B';
    case ActionKind::input_gradient:
      return 'I';
    case ActionKind::weight_gradient:
      return 'W';
  }
  return '?';
}

std::string csv_of(const Plan& plan) {
  const Schedule schedule = schedule_from_rows(plan.schedule, "the plan");
  std::string text;
  for (const auto& row : schedule.rows) {
    std::string line;
    for (const Action& action : row) {
      line += fmt::format("{}{}{}{}", line.empty() ? "" : ",", action.stage, letter(action.kind),
                          action.micro_batch);
    }
    text += line + "\n";
  }
  return text;
}

class TomlWriter {
 public:
  void section(const std::string& name) { text_ += fmt::format("\n[{}]\n", name); }
  void set(const std::string& key, const std::string& value) {
    text_ += fmt::format("{} = \"{}\"\n", key, value);
  }
  void set(const std::string& key, const char* value) { set(key, std::string(value)); }
  void set(const std::string& key, int64_t value) { text_ += fmt::format("{} = {}\n", key, value); }
  void set(const std::string& key, bool value) { text_ += fmt::format("{} = {}\n", key, value); }
  void set_raw(const std::string& key, const std::string& value) {
    text_ += fmt::format("{} = {}\n", key, value);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

void add_model(const Plan& plan, TomlWriter& toml, std::vector<std::string>& warnings) {
  toml.section("model");
  for (const TitanModel& model : kTitanModels) {
    if (plan.model.name != model.zoo) continue;
    toml.set("name", model.name);
    toml.set("flavor", model.flavor);
    return;
  }
  toml.set("name", "llama3");
  toml.set("flavor", "debugmodel");
  warnings.push_back(fmt::format(
      "torchtitan has no model {}: register it and set model.name and model.flavor", plan.model.name));
}

void add_training(const Plan& plan, TomlWriter& toml, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  toml.section("training");
  toml.set("local_batch_size", l.pipeline > 1 ? plan.workload.global_batch / l.data : l.micro_batch);
  toml.set("global_batch_size", plan.workload.global_batch);
  toml.set("seq_len", plan.workload.sequence);
  toml.set("mixed_precision_param", l.precision == Precision::fp32 ? "float32" : "bfloat16");
  if (l.offload_optimizer) {
    toml.set("enable_cpu_offload", true);
    warnings.push_back("training.enable_cpu_offload moves weights and gradients to the host, too");
  }
  if (l.precision == Precision::fp16) warnings.push_back("torchtitan has no fp16: bfloat16 is written");
  if (l.precision == Precision::nvfp4)
    warnings.emplace_back("torchtitan has no NVFP4: its products run in 16 bits, the plan's time is shorter");
  else if (is_narrow(l.precision))
    warnings.push_back(fmt::format("for {} add \"quantize.linear.{}\" to model.converters",
                                   enum_name(l.precision),
                                   l.precision == Precision::mxfp8 ? "mx" : "float8"));
  if (attention_in_fp8(l))
    warnings.emplace_back("attention in fp8: torchtitan's runs in 16 bits, the plan's time is shorter");
  if (head_in_fp8(l))
    warnings.emplace_back("the head's product in fp8: take \"output\" out of the converter's filter_fqns");
}

void add_data_parallel(const Layout& l, TomlWriter& toml, std::vector<std::string>& warnings) {
  const int64_t shard = sharing_data_ranks(l);
  toml.set("data_parallel_replicate_degree", l.data / shard);
  toml.set("data_parallel_shard_degree", shard);
  if (l.zero == 3) {
    toml.set("fsdp_reshard_after_forward", "always");
  } else if (l.zero > 0) {
    toml.set("fsdp_reshard_after_forward", "never");
    if (l.zero == 1)
      warnings.push_back("FSDP shards gradients beside optimizer state: ZeRO 1 becomes ZeRO 2");
  } else if (l.context > 1) {
    warnings.push_back("torchtitan shards weights over context ranks; the plan keeps them whole");
  }
}

std::string stage_modules(const Plan& plan) {
  std::string stages;
  for (const StageContent& stage : stage_contents(plan.model, plan.layout)) {
    std::vector<std::string> modules;
    if (stage.has_embedding) modules.emplace_back("\"tok_embeddings\"");
    for (int64_t n = 0; n < stage.layer_count; ++n)
      modules.push_back(fmt::format("\"layers.{}\"", stage.first_layer + n));
    if (stage.has_head) {
      modules.emplace_back("\"norm\"");
      modules.emplace_back("\"output\"");
    }
    stages += fmt::format("  [{}],\n", fmt::join(modules, ", "));
  }
  return fmt::format("[\n{}]", stages);
}

void add_pipeline(const Plan& plan, TomlWriter& toml) {
  const Layout& l = plan.layout;
  toml.set("pipeline_parallel_degree", l.pipeline);
  if (l.pipeline == 1) return;
  const TitanSchedule schedule = torch_schedule(l);
  toml.set("pipeline_parallel_schedule", schedule.name);
  if (!schedule.exact) toml.set("pipeline_parallel_schedule_csv", "schedule.csv");
  toml.set("pipeline_parallel_microbatch_size", l.micro_batch);
  toml.set_raw("module_fqns_per_model_part", stage_modules(plan));
}

void add_parallelism(const Plan& plan, TomlWriter& toml, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  toml.section("parallelism");
  add_data_parallel(l, toml, warnings);
  toml.set("tensor_parallel_degree", l.tensor);
  if (l.tensor > 1 && !l.sequence_parallel)
    warnings.push_back("torchtitan's tensor parallelism always splits the sequence, too");
  if (l.overlap_tensor) toml.set("enable_async_tensor_parallel", true);
  add_pipeline(plan, toml);
  toml.set("context_parallel_degree", l.context);
  if (l.context > 1 && l.context_method == ContextMethod::all_to_all)
    warnings.push_back("torchtitan's context ranks pass keys round: heads for tokens is not in it");
  if (l.context > 1) toml.set("context_parallel_rotate_method", "alltoall");
  if (plan.model.moe) {
    toml.set("expert_parallel_degree", l.expert);
    toml.set("expert_tensor_parallel_degree", l.expert_split() == l.tensor ? l.tensor : int64_t{1});
  }
  if (l.order == RankOrder::data_outermost && l.pipeline > 1 && l.data > 1)
    warnings.push_back("torchtitan's mesh has the pipeline outermost; the plan has data outermost");
}

void add_recompute(const Plan& plan, TomlWriter& toml, std::vector<std::string>& warnings) {
  const Layout& l = plan.layout;
  toml.section("activation_checkpoint");
  int64_t recomputed = 0;
  for (const int64_t n : l.recomputed_layers) recomputed += n;
  if (l.recompute == Recompute::full && !l.recomputed_layers.empty() && recomputed < plan.model.layers) {
    const auto exact = frameworks::every_nth(l);
    const int64_t nearest = recomputed == 0 ? 0 : std::max<int64_t>(1, plan.model.layers / recomputed);
    const int64_t every = exact.value_or(nearest);
    toml.set("mode", every == 0 ? "none" : "selective");
    if (every > 0) toml.set("selective_ac_option", std::to_string(every));
    if (exact) return;
    warnings.push_back(
        fmt::format("{} of {} layers recompute in the plan, chosen by stage; torchtitan takes every n-th",
                    recomputed, plan.model.layers));
    return;
  }
  toml.set("mode", l.recompute == Recompute::none   ? "none"
                   : l.recompute == Recompute::full ? "full"
                                                    : "selective");
  if (l.recompute == Recompute::selective) {
    toml.set("selective_ac_option", "op");
    warnings.push_back("selective recompute: torchtitan chooses by operator, the plan recomputes attention");
  }
}

}  // namespace

Exported export_torchtitan(const Plan& plan) {
  Exported exported;
  TomlWriter toml;
  add_model(plan, toml, exported.warnings);
  add_training(plan, toml, exported.warnings);
  add_parallelism(plan, toml, exported.warnings);
  add_recompute(plan, toml, exported.warnings);
  if (plan.layout.overlap_tensor) {
    toml.section("compile");  // asynchronous tensor parallelism is done by the compiler
    toml.set("enable", true);
  }
  exported.files.push_back({"torchtitan.toml", "# " + export_title(plan) + "\n" + toml.text()});
  if (plan.layout.pipeline > 1) exported.files.push_back({"schedule.csv", csv_of(plan)});
  return exported;
}

}  // namespace mpt::frameworks
