// SPDX-License-Identifier: Apache-2.0
#include "frameworks/export.h"

#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "frameworks/framework.h"
#include "models/footprint.h"

namespace mpt::frameworks {

const std::vector<std::pair<std::string_view, std::string_view>>& template_files();  // generated

std::optional<TrialCommand> trial_command(const Plan& plan, const std::string& folder, int64_t steps) {
  const std::pair<std::string_view, std::string> marks[] = {{"@steps@", std::to_string(steps)},
                                                            {"@folder@", folder}};
  const Framework* framework = find_framework(plan.layout.execution->framework);
  // Adapters need trained weights, which a trial does not have.
  if (framework == nullptr || framework->trial.script.empty() || plan.layout.training->adapts() ||
      (framework->trial.whole_model && plan.layout.pipeline > 1))
    return std::nullopt;
  const std::string in_folder = shell_word(folder) + "/";
  std::string text = node_count(plan) > 1 ? "sbatch " + in_folder + "job.sbatch " : "bash ";
  text += in_folder + framework->trial.script;
  for (std::string word : framework->trial.arguments) {
    for (const auto& [mark, value] : marks)
      if (const size_t at = word.find(mark); at != std::string::npos) word.replace(at, mark.size(), value);
    text += " " + shell_word(word);
  }
  const std::string& where = framework->trial.where;
  return TrialCommand{text, where.empty() ? "" : ", " + where};
}

int64_t sharing_data_ranks(const Layout& layout) {
  return std::max<int64_t>(1, models::dense_shard(layout) / layout.context);
}

std::string torch_class_of(const std::string& schedule) {
  static const std::map<std::string, std::string> classes{
#include "generated/TorchSchedules.inc"
  };
  return copy_of(classes, schedule).value_or("");
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
  for (const auto& [given, text] : rows)
    if (given) sentences.emplace_back(text);
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

bool attention_in_fp8(const Layout& l) {
  return is_narrow(l.precision) && l.execution->kernels.fp8_attention;
}
bool head_in_fp8(const Layout& l) { return is_narrow(l.precision) && l.execution->kernels.fp8_head; }

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

std::string template_text(const std::string& name) {
  for (const auto& [file, text] : template_files())
    if (file == name) return std::string(text);
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
