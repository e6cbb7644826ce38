// SPDX-License-Identifier: Apache-2.0
#include "runtime/last_screen.h"

#include <fmt/format.h>

#include <cmath>

#include "reports/compare.h"

namespace mpt::runtime {
namespace {

constexpr double kNearlyRight = 0.03, kFarOff = 0.10;
constexpr size_t kMostStages = 8;

// The quantities, then the stages with the largest differences between measured and predicted memory.
std::vector<reports::ComparisonRow> screen_rows(const Plan& plan, const reports::RunResult& result) {
  std::vector<reports::ComparisonRow> rows = reports::compare_run(plan, result);
  if (plan.prediction.memory.size() <= kMostStages) return rows;
  Plan fewer = plan;
  const auto miss = [&](const RankMemory& m) {
    return std::abs(double(result.peak_bytes[size_t(m.rank)]) / double(m.peak_bytes) - 1.0);
  };
  sort_by(fewer.prediction.memory, [&](const RankMemory& rank) { return -miss(rank); });
  fewer.prediction.memory.resize(kMostStages);
  return reports::compare_run(fewer, result);
}

std::string verdict(const Plan& plan, const reports::RunResult& result, const Palette& palette) {
  const double off = std::abs(reports::slowdown_of(plan, result));
  const std::string text = reports::verdict_text(plan, result);
  return off <= kFarOff ? palette.good(text) : palette.caution(text);
}

std::string files_written(const RunFacts& facts) {
  std::string text;
  const auto add = [&](const std::string& path, const char* what) {
    const std::string* lacks = find_value(facts.lost, path);
    if (!path.empty())
      text += lacks ? fmt::format("not whole: {}\n", *lacks) : fmt::format("wrote {} ({})\n", path, what);
  };
  add(facts.saved.string(), "checkpoint");
  add(facts.log, "a line per step");
  add(facts.tensorboard, "curves, for tensorboard --logdir");
  add(facts.metrics, "figures of the last step, for Prometheus");
  add(facts.trace, "for ui.perfetto.dev");
  add(facts.report, "report");
  return text;
}

std::string next_commands(const RunFacts& facts, bool stopped) {
  std::vector<std::pair<std::string, const char*>> commands;
  if (stopped && !facts.saved.empty())
    commands.emplace_back("the same command with --resume auto", "goes on from that checkpoint");
  if (!facts.log.empty())
    commands.emplace_back(
        fmt::format("mpt-plan diagnose {} {}", shell_word(facts.plan), shell_word(facts.log)),
        "where the difference comes from");
  else
    commands.emplace_back("the same command with --log run.jsonl",
                          "for mpt-plan diagnose: where the time goes");
  if (!facts.saved.empty())
    commands.emplace_back(fmt::format("mpt-run export {} exported", shell_word(facts.checkpoints)),
                          "the weights as a Hugging Face model");
  const auto width = max_of<size_t>(commands, 0, [](const auto& next) { return columns_of(next.first); });
  std::string text = "\nNext\n";
  for (const auto& [command, what] : commands) text += fmt::format("  {:<{}}  {}\n", command, width, what);
  return text;
}

}  // namespace

std::vector<std::string> possible_causes(const Plan& plan, const reports::RunResult& result,
                                         const RunFacts& facts) {
  constexpr double kBusy = 0.1;
  constexpr size_t kFewSteps = 6;
  std::vector<std::string> causes;
  if (plan.cost.spread > kNoisySpread)
    causes.push_back(fmt::format(
        "the profile is noisy: its timings vary by up to {:.0f}%. Measure (mpt-profile) and plan again while "
        "the machine is idle",
        plan.cost.spread * 100));
  if (plan.cost.source == "roofline")
    causes.push_back(fmt::format("the plan's times are estimates from data sheets ({}), not measurements",
                                 plan.cost.machine));
  if (facts.others_share > kBusy)
    causes.push_back(fmt::format("other programs used {:.0f}% of this machine's cores meanwhile",
                                 facts.others_share * 100));
  if (plan.cluster.device.kind == DeviceKind::cpu && facts.cores > 0 && plan.layout.ranks() > facts.cores)
    causes.push_back(fmt::format("{} ranks shared {} cores; how the system divides them is not modelled",
                                 plan.layout.ranks(), facts.cores));
  if (result.steps.size() <= kFewSteps)
    causes.push_back(
        fmt::format("few steps were timed ({}); the first ones of a run are slower", result.steps.size()));
  return causes;
}

std::string last_screen(const Plan& plan, const reports::RunResult& result, const RunFacts& facts,
                        const Palette& palette) {
  std::string text = fmt::format("\n{} ({} steps; predicted from {} of {})\n{}\n\n{}",
                                 palette.heading("Measured against predicted"), result.steps.size(),
                                 plan.cost.source, plan.cost.machine, verdict(plan, result, palette),
                                 reports::comparison_table(screen_rows(plan, result)));
  if (plan.prediction.memory.size() > kMostStages)
    text += fmt::format("  ({} more stages are nearer to their prediction)\n",
                        plan.prediction.memory.size() - kMostStages);
  text += "  bubble: share of the step in which a stage has nothing to compute; a point is 1% of the step\n";
  const std::vector<std::string> causes = possible_causes(plan, result, facts);
  if (std::abs(reports::slowdown_of(plan, result)) > kNearlyRight && !causes.empty()) {
    text += "\nWhat may explain the difference\n";
    for (const std::string& cause : causes) text += wrapped(cause, "  - ");
  }
  const std::string files = files_written(facts);
  return text + (files.empty() ? "" : "\n" + files) + next_commands(facts, result.stopped);
}

}  // namespace mpt::runtime
