// SPDX-License-Identifier: Apache-2.0

// mpt-run: load the plan, train, report measured beside predicted.

#include <atomic>

#include "core/command_line.h"
#include "core/interruption.h"
#include "core/json.h"
#include "core/plan.h"
#include "core/quantity.h"
#include "reports/compare.h"
#include "reports/html.h"
#include "reports/trace.h"
#include "runtime/command_line.h"
#include "runtime/monitor/step_monitor.h"
#include "runtime/train/trainer.h"

namespace mpt {
namespace {

void write_outputs(const runtime::RunOptions& o, const Plan& plan, const reports::RunResult& result) {
  const StepProgram program = program_of(plan);
  const std::optional<Timeline> predicted = stored_timeline(plan);
  if (!o.trace.empty()) {
    std::vector<reports::NamedTimeline> timelines{{"measured", result.timeline}};
    if (predicted) timelines.push_back({"predicted", *predicted});
    write_file_atomically(o.trace, reports::trace_json(program, timelines));
  }
  if (!o.report.empty())
    write_file_atomically(o.report, reports::run_report(plan, program, predicted, result));
  if (o.quiet) return;
  fmt::print("\nMeasured against predicted, {} steps (costs: {} of {})\n\n{}", result.steps.size(),
             plan.cost.source, plan.cost.machine,
             reports::comparison_table(reports::compare_run(plan, result)));
  for (const std::string& file : {o.log, o.trace, o.report}) {
    if (!file.empty()) fmt::print("wrote {}\n", file);
  }
}

int run(int argc, char** argv) {
  runtime::RunOptions o;
  CLI::App app{"Trains the model of a plan in the plan's layout, on threads of this machine."};
  runtime::declare(app, o);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  const Plan plan = load_plan(o.plan);
  runtime::check_plan(plan, o);
  const runtime::TextCorpus corpus({o.data.begin(), o.data.end()}, plan.workload.sequence, o.train.seed);
  if (!o.quiet) {
    fmt::print("{}: {}, {} ranks; {} of text, {} windows of {} tokens\n", plan.model.name,
               layout_name(plan.layout), plan.layout.ranks(), format_bytes(double(corpus.tokens())),
               format_count(corpus.windows()), plan.workload.sequence);
  }
  catch_signals();
  reports::RunResult result;
  {
    runtime::StepMonitor monitor(plan, o.train.steps, o.log, o.quiet);
    result = runtime::train(
        plan, o.train, corpus, [&](const auto& record) { monitor.on_step(record); }, stop_requested());
  }
  if (!result.steps.empty()) write_outputs(o, plan, result);
  if (!stop_requested()) return kExitOk;
  fmt::print(stderr, "mpt-run: stopped after step {} as asked\n", result.steps.size());
  return kExitInterrupted;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-run", [&] { return mpt::run(argc, argv); });
}
