// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/plan_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/utilisation.h"
#include "reports/utilisation.h"

namespace mpt::planner {

std::vector<Compared> named(const std::vector<std::string>& names, std::vector<PlanOrReason> answers) {
  std::vector<Compared> compared;
  for (size_t n = 0; n < names.size(); ++n)
    compared.push_back({names[n], std::move(answers[n].plan), std::move(answers[n].reason)});
  return compared;
}

const Plan* first_plan(const std::vector<Compared>& compared) {
  const auto first = std::find_if(compared.begin(), compared.end(), [](const Compared& c) { return c.plan; });
  return first == compared.end() ? nullptr : &*first->plan;
}

std::vector<reports::Column> plan_columns(const reports::Column& first, const std::vector<Compared>& compared,
                                          const CostOptions& cost) {
  const Plan* const plan = first_plan(compared);
  const bool cpu = plan != nullptr && plan->cluster.device.kind == DeviceKind::cpu;
  const std::string unit = cpu ? "rank" : "GPU";
  std::vector<reports::Column> columns{first,        {"layout", reports::Align::left},
                                       {unit + "s"}, {"step time"},
                                       {"tokens/s"}, {"per " + unit},
                                       {"MFU"},      {"idle"},
                                       {"memory"}};
  if (!cost.tokens.empty()) columns.insert(columns.end(), {{"days"}, {unit + "-hours"}, {"cost"}});
  return columns;
}

std::vector<std::string> plan_row(const Compared& compared, const CostOptions& cost) {
  constexpr size_t kPlain = 9, kOfTraining = 3;
  if (!compared.plan) {
    std::vector<std::string> row{compared.name, compared.why};
    row.resize(kPlain + (cost.tokens.empty() ? 0 : kOfTraining), "-");
    return row;
  }
  const Plan& plan = *compared.plan;
  const double rate = plan.prediction.tokens_per_s;
  std::vector<std::string> row{compared.name,
                               layout_name(plan.layout),
                               format_count(plan.layout.ranks()),
                               format_seconds(plan.prediction.step_time_s),
                               format_count(int64_t(rate)),
                               format_count(int64_t(rate / double(plan.layout.ranks()))),
                               format_percent(model_flop_utilisation(plan)),
                               format_percent(plan.prediction.bubble_share),
                               format_bytes(double(reports::peak_bytes(plan)))};
  if (!cost.tokens.empty()) {
    const TrainingCost c =
        training_cost(plan, parse_count(cost.tokens, "--tokens"), cost.price, cost.goodput);
    const auto ranged = [&](double value, std::string (*in_words)(double)) {
      return with_range(value, plan.prediction.step_time_s, plan.prediction.confidence, in_words);
    };
    row.insert(row.end(), {ranged(c.days, format_days), format_magnitude(c.device_hours),
                           cost.price > 0 ? ranged(c.price, format_magnitude) : "-"});
  }
  return row;
}

std::string describe_job(const Plan& plan, bool same_workload, bool same_framework) {
  std::string text = fmt::format("{} in {}", plan.model.name, enum_name(plan.layout.precision));
  if (same_workload)
    text += fmt::format(", {} sequences of {} tokens per step", plan.workload.global_batch,
                        plan.workload.sequence);
  return text + (same_framework ? ", for " + plan.layout.execution.framework : "") + "\n";
}

std::string describe_days(const std::vector<Compared>& compared, const CostOptions& cost) {
  const Plan* const plan = first_plan(compared);
  if (cost.tokens.empty() || plan == nullptr) return "";
  std::string text = fmt::format("Days for {} tokens: {}.\n", cost.tokens, describe_goodput(cost));
  const bool alike = std::all_of(compared.begin(), compared.end(), [&](const Compared& c) {
    return !c.plan || c.plan->layout.execution.framework == plan->layout.execution.framework;
  });
  const auto range = published_range(*plan, published_evidence());
  if (alike && range) text += fmt::format("{} Days and cost scale with it.\n", describe_range(*range));
  return text;
}

}  // namespace mpt::planner
