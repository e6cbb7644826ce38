// SPDX-License-Identifier: Apache-2.0
#include "planner/diagnose/run_log.h"

#include "base/error.h"
#include "base/quantity.h"

namespace mpt::planner {
namespace {

using frameworks::LoggedFact;
using frameworks::LoggedRun;
using frameworks::LoggedStep;

[[noreturn]] void refuse_other_run(const std::string& file, size_t line, const char* what, int64_t logged,
                                   int64_t planned, const char* option) {
  refuse_input(
      fmt::format("{} at line {}", file, line), fmt::format("a {} of {}", what, format_count(logged)),
      fmt::format("{}, as in the plan", format_count(planned)),
      fmt::format("plan what was run, with {} {}, or give the log of this plan's run", option, logged));
}

void check_fact(const std::optional<LoggedFact>& fact, const std::string& file, const char* what,
                int64_t planned, const char* option) {
  if (fact && int64_t(fact->value) != planned)
    refuse_other_run(file, fact->line, what, int64_t(fact->value), planned, option);
}

// If a batch grows step by step, only steps with the plan's batch are comparable.
void keep_planned_batch(LoggedRun& run, const std::string& file, int64_t planned) {
  const auto is_other = [&](const LoggedStep& s) { return s.global_batch != 0 && s.global_batch != planned; };
  const auto other = find_if(run.steps, is_other);
  if (other == run.steps.end()) return;
  const LoggedStep first = *other;
  std::erase_if(run.steps, is_other);
  if (run.steps.empty())
    refuse_other_run(file, size_t(first.line), "global batch", first.global_batch, planned, "--global-batch");
}

void check_same_run(LoggedRun& run, const std::string& file, const Plan& plan) {
  check_fact(run.ranks, file, "world size", plan.layout.ranks(), "--gpus");
  check_fact(run.sequence, file, "sequence length", plan.workload.sequence, "--seq");
  keep_planned_batch(run, file, plan.workload.global_batch);
  const bool each_step_said_it = any_of(run.steps, [](const LoggedStep& s) { return s.global_batch != 0; });
  if (!each_step_said_it)
    check_fact(run.global_batch, file, "global batch", plan.workload.global_batch, "--global-batch");
}

std::vector<Trouble> troubles_of(const LoggedRun& run, const frameworks::LogFile& file, const Plan& plan) {
  BadSteps not_finite, skipped;
  for (const LoggedStep& step : run.steps) {
    not_finite.add(step.not_finite, step.step);
    skipped.add(step.skipped, step.step);
  }
  std::vector<Trouble> troubles = find_troubles(file, plan);
  for (Trouble& t : bad_steps(not_finite, skipped, plan.layout.precision)) troubles.push_back(std::move(t));
  for (Trouble& t : find_signs(file, plan, not_finite.count > 0)) troubles.push_back(std::move(t));
  if (run.steps.empty())
    for (Trouble& t : falling_speed(file)) troubles.push_back(std::move(t));
  return troubles;
}

MeasuredRun measured_run(const LoggedRun& logged) {
  MeasuredRun run;
  std::vector<double> times, rates;
  for (size_t i = reports::warm_up_steps(logged.steps.size()); i < logged.steps.size(); ++i) {
    const LoggedStep& step = logged.steps[i];
    times.push_back(step.seconds);
    if (step.flop_per_s > 0.0) rates.push_back(step.flop_per_s);
    run.steps.push_back({step.step > 0 ? step.step : int64_t(i) + 1, step.seconds});
  }
  run.step_time_s = reports::median(times);
  run.flop_per_s = reports::median(rates);
  run.peak_bytes = logged.peak_bytes;
  for (size_t p = 0; p < frameworks::kStepParts; ++p) {
    std::vector<double> seconds = logged.parts[p];
    seconds.erase(seconds.begin(), seconds.begin() + int64_t(reports::warm_up_steps(seconds.size())));
    run.part_s[p] = reports::median(seconds);
  }
  return run;
}

}  // namespace

MeasuredRun read_framework_log(const std::string& text, const std::string& name, const Plan& plan) {
  const std::string plain = without_colours(text);
  const frameworks::LogFile file{name, log_lines(plain)};
  for (const frameworks::LogReader& reader : frameworks::log_readers()) {
    LoggedRun logged = reader.read(file, plan);
    if (logged.steps.empty()) continue;
    check_same_run(logged, name, plan);
    MeasuredRun run = measured_run(logged);
    run.troubles = troubles_of(logged, file, plan);
    run.finer = reader.finer;
    run.source = fmt::format("{}'s log, {} lines", reader.title, run.steps.size());
    return run;
  }
  MeasuredRun run;
  run.troubles = troubles_of({}, file, plan);
  run.source = "a log without steps";
  if (!run.troubles.empty()) return run;
  refuse_input(name, "no step times", "a log of mpt-run (--log), or of " + readable_logs(),
               "or give one figure: --measured 18.7s");
}

}  // namespace mpt::planner
