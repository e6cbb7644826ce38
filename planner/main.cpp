// SPDX-License-Identifier: Apache-2.0

// mpt-plan: load model, load cluster, search, explain, write.

#include "core/command_line.h"
#include "core/json.h"
#include "planner/command_line.h"
#include "planner/explain/explain.h"
#include "planner/search/search.h"
#include "reports/html.h"

namespace mpt {
namespace {

// A plan's own durations over its own program: the prediction again, or for the first time after an edit.
Timeline predicted_timeline(const Plan& plan, const StepProgram& program) {
  const planner::Contention contention{plan.rate_by_active_ranks, plan.layout.tensor * plan.layout.data};
  return planner::simulate(program, durations_of(plan, program), contention);
}

void write_outputs(const planner::PlanOptions& o, const Plan& plan) {
  if (!o.output.empty()) save_plan(plan, o.output);
  if (!o.report.empty()) {
    const StepProgram program = program_of(plan);
    write_file_atomically(o.report, reports::plan_report(plan, program, predicted_timeline(plan, program)));
  }
  fmt::print("{}", o.json ? plan_to_text(plan) : planner::describe_plan(plan));
  if (o.json) return;
  if (!o.from.empty()) fmt::print("Simulated again: {}\n", planner::describe_prediction(plan));
  for (const std::string& file : {o.output, o.report}) {
    if (!file.empty()) fmt::print("wrote {}\n", file);
  }
}

Plan simulated_again(const std::string& file) {
  Plan plan = load_plan(file);
  const StepProgram program = program_of(plan);
  store_timeline(plan, program, predicted_timeline(plan, program));
  for (RankedLayout& ranked : plan.ranking) {
    if (ranked.layout != plan.layout) continue;
    ranked.step_time_s = plan.prediction.step_time_s;
    ranked.bubble_share = plan.prediction.bubble_share;
    ranked.tokens_per_s = plan.prediction.tokens_per_s;
  }
  return plan;
}

Plan searched(const planner::PlanOptions& o) {
  const auto prepared = planner::prepare(o);
  const planner::SearchResult result = planner::search(prepared->problem, size_t(o.top));
  if (result.best.empty()) planner::throw_nothing_fits(result, prepared->problem);
  return planner::make_plan(result, prepared->problem);
}

int run(int argc, char** argv) {
  planner::PlanOptions o;
  CLI::App app{"Finds the fastest layout that fits a model on a cluster, with reasons and proof."};
  planner::declare(app, o);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  write_outputs(o, o.from.empty() ? searched(o) : simulated_again(o.from));
  return kExitOk;
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-plan", [&] { return mpt::run(argc, argv); });
}
