// SPDX-License-Identifier: Apache-2.0

// mpt-plan: search, or one of its commands.

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include "base/clock.h"
#include "base/command_line.h"
#include "base/files.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/commands/command_line.h"
#include "planner/commands/commands.h"
#include "planner/explain/explain.h"
#include "planner/explain/plan_parts.h"
#include "planner/observe/observed_plan.h"
#include "planner/simulate/simulator.h"

namespace mpt {
namespace {

// The plan's durations simulated with its program: the prediction again, or for the first time after an edit.
Plan simulated_again(const std::string& file) {
  Plan plan = load_plan(file);
  const StepProgram program = program_of(plan);
  const planner::Contention contention{plan.rate_by_active_ranks,
                                       plan.layout.tensor * plan.layout.replicas()};
  const std::vector<double> durations_s = durations_of(plan, program);
  store_timeline(plan, program, planner::simulate(program, durations_s, contention));
  Prediction& p = plan.prediction;
  if (plan.layout.pipeline > 1)
    p.pipeline_idle = planner::pipeline_idle(program, durations_s, contention, p.step_time_s, p.bubble_share);
  for (RankedLayout& ranked : plan.ranking) {
    if (ranked.layout != plan.layout) continue;
    ranked.step_time_s = plan.prediction.step_time_s;
    ranked.bubble_share = plan.prediction.bubble_share;
    ranked.tokens_per_s = plan.prediction.tokens_per_s;
  }
  return plan;
}

// The parts of the time until the answer.
std::string describe_waiting(double resolved_s, double searched_s, double explained_s, double all_s) {
  const double files_s = all_s - resolved_s - searched_s - explained_s;
  return "\n" +
         wrapped(fmt::format("Time: {} from the start to the answer. {} of it reading the request and its "
                             "tables, {} searching, {} choosing and explaining, {} writing files.",
                             format_seconds(all_s), format_seconds(resolved_s), format_seconds(searched_s),
                             format_seconds(explained_s), format_seconds(files_s)));
}

// The answer, shortened by the lines for written files; with -v the details follow.
std::string answer(const planner::PlanOptions& o, const Plan& plan, planner::ScreenOptions screen) {
  screen.palette = Palette::of(stdout);
  screen.lines = o.out.verbose ? SIZE_MAX / 2 : planner::kScreenLines - planner::files_of(o.out);
  return planner::plan_screen(plan, screen) + (o.out.verbose ? planner::describe_details(plan) : "");
}

void search_or_simulate(const planner::PlanOptions& o) {
  planner::ScreenOptions screen;
  if (!o.from.empty()) {
    const Plan plan = simulated_again(o.from);
    screen.notes.push_back("Simulated again from " + o.from + ", as it stands in the file.");
    planner::write_files(o.out, plan);
    planner::print_answer(o.out, o.out.json ? plan_to_text(plan) : answer(o, plan, screen));
    return;
  }
  if (o.print_request) {
    fmt::print("{}", request_to_text(o.request));
    return;
  }
  if (o.request.pareto) {
    planner::plan_front(o);
    return;
  }
  const auto resolved = planner::resolve(o.request);
  const double resolved_s = waited_s();
  const Plan plan = [&] {
    const planner::Stoppable stoppable;
    return planner::plan(*resolved, planner::progress_line());
  }();
  if (o.out.json) {
    planner::print_notes(plan.notes);
    planner::write_files(o.out, plan, o.cost, &resolved->problem);
    planner::print_answer(o.out, plan_to_text(plan));
    return;
  }
  screen.notes = plan.notes;
  const std::string host = planner::describe_host(o.request, plan);
  for (const std::string& note : {host, planner::idle_cost(o.cost, o.cost.price > 0.0)})
    if (!note.empty()) screen.notes.push_back(note);
  screen.training = planner::describe_cost(o.cost, plan);
  screen.next = planner::next_commands(o, plan);
  const double explained_s = waited_s() - resolved_s - plan.search.seconds;
  planner::write_files(o.out, plan, o.cost, &resolved->problem);
  screen.waited_s = waited_s();
  std::string text = answer(o, plan, screen);
  if (o.out.verbose) text += describe_waiting(resolved_s, plan.search.seconds, explained_s, *screen.waited_s);
  planner::print_answer(o.out, text);
}

// A search allocates freed memory again at once. If it went back to the system in between, the system would
// clear it each time, which takes a tenth of the time.
void keep_freed_memory() {
#if defined(__GLIBC__)
  constexpr int kNever = 1 << 30;
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, 1 << 25);
#endif
}

int run(int argc, char** argv) {
  keep_freed_memory();
  planner::PlanOptions o;
  CLI::App app{"Finds the fastest way to spread the training of a model over GPUs, and says why."};
  planner::declare(app, o);
  app.require_subcommand(0, 1);
  const std::pair<const char*, std::function<int()>> commands[] = {
      {"estimate", planner::add_estimate(app)},
      {"doctor", planner::add_estimate(app, true)},
      {"explain", planner::add_explain(app)},
      {"export", planner::add_export(app)},
      {"import", planner::add_import(app)},
      {"check", planner::add_check(app)},
      {"diagnose", planner::add_diagnose(app)},
      {"compare", planner::add_compare(app)},
      {"cluster", planner::add_cluster(app)},
      {"model", planner::add_model(app)},
      {"recommend", planner::add_recommend(app)},
      {"tune", planner::add_tune(app)},
      {"page", planner::add_page(app)}};
#include "generated/PlannerFooter.inc"
  app.footer(app.get_footer() + kExitCodes);
  if (const auto code = parse_command_line(app, argc, argv)) return *code;
  files_of_program().check_writable();
  for (const auto& [name, command] : commands) {
    if (!app.got_subcommand(name)) continue;
    const int code = command();
    return stop_requested() ? kExitInterrupted : code;
  }
  planner::check_from(app, o);
  planner::read_runs(o, o.request_file);
  o.program = shell_word(argv[0]);
  o.again = planner::command_again(app, o.program, {"--output"});
  search_or_simulate(o);
  return stop_requested() ? kExitInterrupted : kExitOk;
}

// A stopped search has the exit code of an interruption, whether it has found a layout or not.
int run_or_stop(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const UserError& error) {
    if (!stop_requested()) throw;
    warn(fmt::format("mpt-plan: {}", error.what()));
    return kExitInterrupted;
  }
}

}  // namespace
}  // namespace mpt

int main(int argc, char** argv) {
  return mpt::run_program("mpt-plan", [&] { return mpt::run_or_stop(argc, argv); });
}
