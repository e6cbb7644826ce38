// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/step_curves.h"

#include "base/json.h"

namespace mpt::runtime {
namespace {

struct Metric {
  const char *name, *type, *field, *help;
};
constexpr Metric kStepMetrics[] = {
#include "generated/StepMetrics.inc"
};
constexpr Metric kRankMetrics[] = {
#include "generated/RankMetrics.inc"
};

// Prometheus escapes the same characters in labels as JSON does: backslash, quote and line feed.
std::string quoted(const std::string& text) { return Json(printable(text)).dump(); }

struct MetricRow {
  std::string labels;
  Json figures;
};

void add_metric(const Metric& metric, const std::vector<MetricRow>& rows, std::string& text) {
  bool first = true;
  for (const auto& [labels, figures] : rows) {
    const auto figure = figures.find(metric.field);
    if (figure == figures.end()) continue;
    if (std::exchange(first, false))
      text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", metric.name, metric.help, metric.type);
    const std::string number = figure->dump();  // null where it is not finite
    text += fmt::format("{}{{{}}} {}\n", metric.name, labels, number == "null" ? "NaN" : number);
  }
}

}  // namespace

std::string metrics_of(const reports::StepRecord& step, const std::string& run,
                       const std::vector<std::string>& hosts) {
  const std::string of_run = "run=" + quoted(run);
  std::vector<MetricRow> ranks;
  for (size_t i = 0; i < step.ranks.size(); ++i)
    ranks.push_back(
        {fmt::format("{},rank=\"{}\",host={}", of_run, i, quoted(i < hosts.size() ? hosts[i] : "")),
         to_json(step.ranks[i])});
  std::string text;
  for (const Metric& metric : kStepMetrics) add_metric(metric, {{of_run, to_json(step)}}, text);
  for (const Metric& metric : kRankMetrics) add_metric(metric, ranks, text);
  return text;
}

}  // namespace mpt::runtime
