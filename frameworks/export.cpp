// SPDX-License-Identifier: Apache-2.0
#include "frameworks/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "frameworks/framework.h"
#include "frameworks/registry.h"
#include "frameworks/supports/supports.h"
#include "models/footprint.h"

namespace mpt::frameworks {

const std::vector<std::pair<std::string_view, std::string_view>>& template_files();  // generated

namespace {

const ExportTarget* target_named(const std::string& name) {
  const std::vector<ExportTarget>& all = export_targets();
  const auto found = find_if(all, [&](const ExportTarget& t) { return name == t.name; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace

const std::vector<ExportTarget>& export_targets() {
  static const std::vector<ExportTarget> targets = [] {
    std::vector<ExportTarget> all;
    for (const FrameworkCode& code : framework_code()) {
      if (code.write != nullptr) all.push_back({code.framework, code.files().exported.c_str(), code.write});
    }
    all.push_back({"trl", "TRL 1.16.0: sft.yaml, and accelerate's YAML", export_trl, true});
    all.push_back({"llamafactory", "LLaMA-Factory 0.9.5: its recipe", export_llamafactory, true});
    all.push_back({"axolotl", "axolotl 0.21.0: its recipe", export_axolotl, true});
    all.push_back({"slurm", "Slurm batch file that starts torchrun on every node", export_slurm});
    all.push_back(
        {"kubernetes", "Kubernetes indexed Job that starts torchrun in every pod", export_kubernetes});
    return all;
  }();
  return targets;
}

std::optional<TrialCommand> trial_command(const Plan& plan, const std::string& folder, int64_t steps) {
  const std::pair<std::string_view, std::string> marks[] = {{"@steps@", std::to_string(steps)},
                                                            {"@folder@", folder}};
  const Framework* framework = find_framework(plan.layout.execution.framework);
  // Adapters need trained weights, which a trial does not have.
  if (framework == nullptr || framework->trial.script.empty() || plan.layout.training.adapts() ||
      (framework->trial.whole_model && plan.layout.pipeline > 1))
    return std::nullopt;
  const std::string in_folder = shell_word(folder) + "/";
  std::string text = node_count(plan) > 1 ? "sbatch " + in_folder + "job.sbatch " : "bash ";
  text += in_folder + framework->trial.script;
  for (std::string word : framework->trial.arguments) {
    for (const auto& [mark, value] : marks) {
      if (const size_t at = word.find(mark); at != std::string::npos) word.replace(at, mark.size(), value);
    }
    text += " " + shell_word(word);
  }
  const std::string& where = framework->trial.where;
  return TrialCommand{text, where.empty() ? "" : ", " + where};
}

const ExportTarget* usual_target(const Plan& plan, const std::string& asked) {
  const std::string& framework = plan.layout.execution.framework;
  const ExportTarget* const named = target_named(asked);
  if (named != nullptr && named->tuner && tuner_lacks(asked, plan).empty()) return named;
  const Framework* const known = find_framework(framework);
  if (known == nullptr) return nullptr;
  if (verdict_on(*known, plan.model, plan.layout.training).verdict == VerdictKind::exported)
    return export_target_of(framework);
  const bool others = any_of(features_of(plan.layout.training), [&](TrainingFeature f) {
    return known->abilities.trains_unwritten.contains(f) && !tuners_write(framework, f);
  });
  const bool models = verdict_on(*known, plan.model, Training{}).verdict == VerdictKind::exported;
  return models && !others && tuners_take(framework) ? target_named("trl") : nullptr;
}

const ExportTarget& find_export_target(const std::string& name) {
  if (const ExportTarget* target = target_named(name)) return *target;
  const Framework* framework = find_framework(name);
  if (const ExportTarget* target = target_named(framework != nullptr ? framework->name : name))
    return *target;
  std::vector<std::string> names;
  for (const ExportTarget& target : export_targets()) names.emplace_back(target.name);
  const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
  for (const ExportTarget& target : export_targets()) {
    const Framework* its = find_framework(target.name);
    for (const std::string& alias : its != nullptr ? its->other_names() : std::vector<std::string>{})
      names.push_back(alias);
  }
  throw UserError(
      Problem{"--to", fmt::format("\"{}\"{}", name.substr(0, 40), did_you_mean(name, names)), expected, ""});
}

const ExportTarget* export_target_of(const std::string& framework) {
  const Framework* known = find_framework(framework);
  return known != nullptr ? target_named(known->name) : nullptr;
}

bool takes_plans_of(const ExportTarget& target, const std::string& framework) {
  if (target.tuner) return tuners_take(framework);
  const Framework* its = find_framework(target.name);
  if (its == nullptr) return true;
  const Framework* known = find_framework(framework);
  if (known == nullptr) return false;
  const std::vector<std::string>& others = its->takes_plans_of;
  return known == its || contains(others, known->name);
}

int64_t sharing_data_ranks(const Layout& layout) {
  return std::max<int64_t>(1, models::dense_shard(layout) / layout.context);
}

std::string torch_class_of(const std::string& schedule) {
  static const std::map<std::string, std::string> classes{{"gpipe", "GPipe"},
                                                          {"1f1b", "1F1B"},
                                                          {"interleaved", "Interleaved1F1B"},
                                                          {"zb-interleaved", "InterleavedZeroBubble"},
                                                          {"zb-v", "ZBVZeroBubble"},
                                                          {"dualpipe-v", "DualPipeV"}};
  const auto found = classes.find(schedule);
  return found == classes.end() ? "" : found->second;
}

std::vector<std::string> schedule_lines(const Plan& plan, char separator) {
  const auto letter = [](ActionKind kind) {
    return kind == ActionKind::forward          ? 'F'
           : kind == ActionKind::backward       ? 'B'
           : kind == ActionKind::input_gradient ? 'I'
                                                : 'W';
  };
  std::vector<std::string> lines;
  for (const auto& row : schedule_from_rows(plan.schedule, "the plan").rows) {
    std::string& line = lines.emplace_back();
    for (const Action& action : row) {
      if (!line.empty()) line += separator;
      line += fmt::format("{}{}{}", action.stage, letter(action.kind), action.micro_batch);
    }
  }
  return lines;
}

void add_sentences(std::initializer_list<std::pair<bool, const char*>> rows,
                   std::vector<std::string>& sentences) {
  for (const auto& [given, text] : rows) {
    if (given) sentences.emplace_back(text);
  }
}

std::vector<std::vector<std::string>> stage_modules(const Plan& plan, const StageNames& names) {
  std::vector<std::vector<std::string>> stages;
  for (const StageContent& stage : stage_contents(plan.model, plan.layout)) {
    std::vector<std::string>& modules = stages.emplace_back();
    if (stage.has_embedding) modules.push_back(names.embedding);
    for (int64_t n = 0; n < stage.layer_count; ++n)
      modules.push_back(names.layers + std::to_string(stage.first_layer + n));
    if (stage.has_head) modules.insert(modules.end(), {names.norm, "lm_head"});
  }
  return stages;
}

bool attention_in_fp8(const Layout& l) { return is_narrow(l.precision) && l.execution.kernels.fp8_attention; }
bool head_in_fp8(const Layout& l) { return is_narrow(l.precision) && l.execution.kernels.fp8_head; }

int64_t ranks_per_node(const Plan& plan) { return plan.cluster.ranks_of_host(plan.layout.ranks()); }

int64_t node_count(const Plan& plan) {
  const int64_t per_node = ranks_per_node(plan);
  return (plan.layout.ranks() + per_node - 1) / per_node;
}

std::string export_title(const Plan& plan) {
  std::string title =
      fmt::format("{} on {}: {}, {} ranks, predicted {} per step", plan.model.name, plan.cluster.name,
                  layout_name(plan.layout), plan.layout.ranks(), format_seconds(plan.prediction.step_time_s));
  return comment_text(std::move(title));
}

std::string comment_text(std::string text) {
  const auto is_unsafe = [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\'' || c == '\\'; };
  std::replace_if(text.begin(), text.end(), is_unsafe, '?');
  return text;
}

std::optional<Rejection> cannot_run(const ExportTarget& target, const Plan& plan) {
  const std::string& planned = plan.layout.execution.framework;
  const std::string trainer = !target.tuner ? "" : tuners_take(planned) ? planned : "transformers-fsdp";
  if (target.tuner) {
    const std::string lacks = tuner_lacks(target.name, plan);
    if (!lacks.empty()) return Rejection{"framework", -1, 0.0, 0.0, lacks};
  }
  const Framework* framework = find_framework(trainer.empty() ? target.name : trainer);
  if (framework == nullptr) return std::nullopt;
  Layout l = plan.layout;
  const Abilities& can = framework->abilities;
  if (l.execution.framework != framework->name) {
    const auto always = [&](AlwaysBeside what) { return contains(can.always_overlaps, what); };
    l.overlap_gradient_reduce |= always(AlwaysBeside::gradient_reduce);
    l.overlap_parameter_gather |= always(AlwaysBeside::parameter_gather);
    l.overlap_transfer |= always(AlwaysBeside::transfer);
    l.overlap_tensor &= can.overlap_tensor;
    l.overlap_exchange &= can.overlap_exchange;
  }
  return supports(*framework, plan.model, l, plan.workload);
}

std::string template_text(const std::string& name) {
  for (const auto& [file, text] : template_files()) {
    if (file == name) return std::string(text);
  }
  MPT_CHECK(false, "no template {}", name);
}

std::string filled(const std::string& name, const Plan& plan, std::map<std::string, std::string> values) {
  values.insert({{"title", export_title(plan)},
                 {"nodes", std::to_string(node_count(plan))},
                 {"ranks_per_node", std::to_string(ranks_per_node(plan))},
                 {"processes", processes_word(plan)},
                 {"processes_of_node", processes_of_node(plan, "$node")}});
  const std::string text = template_text(name + ".in");
  std::string all;
  size_t at = 0;
  for (size_t mark = text.find('@'); mark != std::string::npos; mark = text.find('@', at)) {
    const auto value = values.find(text.substr(mark + 1, text.find('@', mark + 1) - mark - 1));
    const bool known = value != values.end();
    all += text.substr(at, mark - at) + (known ? value->second : "@");
    at = mark + 1 + (known ? value->first.size() + 1 : 0);
  }
  return all + text.substr(at);
}

void add_filled(const Plan& plan, const std::string& name, std::map<std::string, std::string> values,
                Exported& exported) {
  exported.files.push_back({name, filled(name, plan, std::move(values)), name.ends_with(".sh")});
}

void add_trial(const Plan& plan, const char* software, const std::string& name,
               std::map<std::string, std::string> values, Exported& exported) {
  add_filled(plan, "mpt_" + name + "_trial.py", std::move(values), exported);
  const std::string text = filled("run_trial.sh", plan, {{"software", software}, {"name", name}});
  exported.files.push_back({"run_" + name + "_trial.sh", text, true});
}

std::string processes_word(const Plan& plan) {
  return plan.layout.ranks() % ranks_per_node(plan) == 0 ? std::to_string(ranks_per_node(plan))
                                                         : "\"$processes\"";
}

std::string processes_of_node(const Plan& plan, const std::string& node) {
  const int64_t per_node = ranks_per_node(plan), left = plan.layout.ranks() % per_node;
  if (left == 0) return "";
  return fmt::format("processes={}\nif [ \"{}\" = {} ]; then processes={}; fi\n", per_node, node,
                     node_count(plan) - 1, left);
}

}  // namespace mpt::frameworks
