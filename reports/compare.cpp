// SPDX-License-Identifier: Apache-2.0
#include "reports/compare.h"

#include <fmt/format.h>

#include <map>

#include "core/quantity.h"
#include "reports/table.h"

namespace mpt::reports {
namespace {

// Of the measurement, which is the truth here: (predicted - measured) / measured.
std::string error_of(double predicted, double measured) {
  return measured > 0.0 ? fmt::format("{:+.1f}%", (predicted - measured) / measured * 100.0) : "";
}

struct Mean {
  double predicted = 0.0, measured = 0.0;
  int64_t count = 0;
};

}  // namespace

std::vector<ComparisonRow> compare_run(const Plan& plan, const RunResult& result) {
  const Prediction& p = plan.prediction;
  const double step = median_step_time_s(result), bubble = median_bubble_share(result);
  const double tokens = step > 0.0 ? double(plan.workload.tokens_per_step()) / step : 0.0;
  std::vector<ComparisonRow> rows{
      {"step time", format_seconds(p.step_time_s), format_seconds(step), error_of(p.step_time_s, step)},
      {"bubble share", format_percent(p.bubble_share), format_percent(bubble),
       fmt::format("{:+.1f} points", (p.bubble_share - bubble) * 100.0)},
      {"tokens/s", format_count(int64_t(p.tokens_per_s)), format_count(int64_t(tokens)),
       error_of(p.tokens_per_s, tokens)},
  };
  for (const RankMemory& m : p.memory) {
    const auto measured = double(result.peak_bytes[size_t(m.rank)]);
    rows.push_back({fmt::format("peak memory, pipeline rank {}", m.rank), format_bytes(double(m.peak_bytes)),
                    format_bytes(measured), error_of(double(m.peak_bytes), measured)});
    if (result.predicted_at_load.empty()) continue;
    const auto at_load = double(result.predicted_at_load[size_t(m.rank)]);
    rows.push_back(
        {fmt::format("  with its experts' load, {:.2f} of an even share", result.expert_load[size_t(m.rank)]),
         format_bytes(at_load), "", error_of(at_load, measured)});
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
                    error_of(mean.predicted, mean.measured)});
  }
  return rows;
}

std::string comparison_table(const std::vector<ComparisonRow>& rows) {
  Table table({{"", Align::left}, {"predicted"}, {"measured"}, {"error"}});
  for (const ComparisonRow& row : rows) table.add_row({row.quantity, row.predicted, row.measured, row.error});
  return table.text();
}

}  // namespace mpt::reports
