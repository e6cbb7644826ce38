// SPDX-License-Identifier: Apache-2.0
#include "reports/compare.h"

#include <fmt/format.h>

#include <cmath>

#include "base/quantity.h"
#include "reports/table.h"

namespace mpt::reports {
namespace {

constexpr double kEqual = 0.0005;  // smaller shares would be printed as 0.0%

// "13.3% slower", or "3.1 times": measured over predicted, the one error that programs print.
std::string difference_of(double predicted, double measured, const char* more, const char* less) {
  if (predicted <= 0.0) return "";
  const double share = measured / predicted - 1.0;
  if (std::abs(share) < kEqual) return "as predicted";
  return fmt::format("{} {}", format_difference(std::abs(share)), share > 0.0 ? more : less);
}

std::string points_of(double predicted, double measured) {
  const double points = (measured - predicted) * 100.0;
  if (std::abs(points) < 100.0 * kEqual) return "as predicted";
  return fmt::format("{:.1f} points {}", std::abs(points), points > 0.0 ? "more" : "less");
}

struct Mean {
  double predicted = 0.0, measured = 0.0;
  int64_t count = 0;
};

}  // namespace

double slowdown_of(const Plan& plan, const RunResult& result) {
  const double predicted = plan.prediction.step_time_s;
  return predicted > 0.0 ? median_step_time_s(result) / predicted - 1.0 : 0.0;
}

std::string verdict_text(const Plan& plan, const RunResult& result) {
  const double predicted = plan.prediction.step_time_s, measured = median_step_time_s(result);
  if (slowdown_of(plan, result) >= 1.0)
    return fmt::format("Measured is {:.1f} times as long as predicted: {} per step, predicted {}.",
                       measured / predicted, format_seconds(measured), format_seconds(predicted));
  return fmt::format("Measured is {}{}: {} per step, predicted {}.",
                     difference_of(predicted, measured, "slower", "faster"),
                     std::abs(slowdown_of(plan, result)) < kEqual ? "" : " than predicted",
                     format_seconds(measured), format_seconds(predicted));
}

std::vector<ComparisonRow> compare_run(const Plan& plan, const RunResult& result) {
  const Prediction& p = plan.prediction;
  const double step = median_step_time_s(result), bubble = median_bubble_share(result);
  const double tokens = step > 0.0 ? double(plan.workload.tokens_per_step()) / step : 0.0;
  std::vector<ComparisonRow> rows{
      {"step time", format_seconds(p.step_time_s), format_seconds(step),
       difference_of(p.step_time_s, step, "slower", "faster")},
      {"tokens/s", format_count(int64_t(p.tokens_per_s)), format_count(int64_t(tokens)), ""},
      {"bubble", format_percent(p.bubble_share), format_percent(bubble), points_of(p.bubble_share, bubble)},
  };
  for (const RankMemory& m : p.memory) {
    const auto measured = double(result.peak_bytes[size_t(m.rank)]);
    rows.push_back({fmt::format("peak memory, stage {}", m.rank), format_bytes(double(m.peak_bytes)),
                    format_bytes(measured), difference_of(double(m.peak_bytes), measured, "more", "less")});
    if (result.predicted_at_load.empty()) continue;
    const auto at_load = double(result.predicted_at_load[size_t(m.rank)]);
    rows.push_back(
        {fmt::format("  with its experts' load, {:.2f} of an even share", result.expert_load[size_t(m.rank)]),
         format_bytes(at_load), "", difference_of(at_load, measured, "more", "less")});
  }
  return rows;
}

std::vector<ComparisonRow> compare_instructions(const StepProgram& program, const Timeline& predicted,
                                                const Timeline& measured) {
  std::map<std::pair<InstructionKind, int>, Mean> means;
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    Mean& mean = means[{i.kind, i.stage}];
    mean.predicted += predicted.spans[size_t(id)].seconds();
    mean.measured += measured.spans[size_t(id)].seconds();
    ++mean.count;
  }
  std::vector<ComparisonRow> rows;
  for (const auto& [key, mean] : means) {
    const double count = double(mean.count);
    const std::string stage = key.second < 0 ? "" : fmt::format(", stage {}", key.second);
    rows.push_back({fmt::format("{}{} (x{})", enum_name(key.first), stage, mean.count),
                    format_seconds(mean.predicted / count), format_seconds(mean.measured / count),
                    difference_of(mean.predicted, mean.measured, "slower", "faster")});
  }
  return rows;
}

std::string comparison_table(const std::vector<ComparisonRow>& rows) {
  Table table({{"", Align::left}, {"predicted"}, {"measured"}, {"measured is"}});
  for (const auto& row : rows) table.add_row({row.quantity, row.predicted, row.measured, row.difference});
  return table.text();
}

}  // namespace mpt::reports
