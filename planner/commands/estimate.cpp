// SPDX-License-Identifier: Apache-2.0

// mpt-plan estimate: scores a layout that somebody has, whether it fits or not, and says what would be
// better.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/search_words.h"
#include "planner/answer/layout_changes.h"
#include "planner/answer/recommend.h"
#include "planner/commands/commands.h"
#include "planner/commands/stoppable.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/confidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/operators.h"
#include "planner/explain/placement.h"
#include "planner/explain/utilisation.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

struct EstimateOptions {
  std::string plan;
  LinesOptions lines;
  PlanOptions problem;
};

// What the layout leaves open and a run would have to be asked for.
std::string defaults_of(const SearchProblem& problem, const Layout& l) {
  const SearchBounds& b = problem.bounds;
  std::vector<std::string> said;
  if (b.zero.empty() && l.replicas() > 1) said.push_back(fmt::format("--zero {}", l.zero));
  if (b.sequence_parallel.empty() && l.tensor > 1 && !needs_sequence_parallel(problem))
    said.push_back(fmt::format("--sp {}", l.sequence_parallel ? "on" : "off"));
  return said.empty() ? "" : fmt::format("assumed: {}", fmt::join(said, ", "));
}

std::string describe_estimate(const Estimated& e, const PlanOptions& o, bool given) {
  const SearchProblem& problem = e.resolved->problem;
  const Plan& plan = e.plan;
  const Palette palette = Palette::of(stdout);
  std::string text =
      describe_task(plan, palette) + "\n" +
      describe_choice("YOUR LAYOUT", plan, palette, given ? "" : defaults_of(problem, plan.layout)) + "\n" +
      describe_verdict(plan, e.fits() ? std::nullopt : e.candidate.evaluation.rejection, palette) +
      describe_figures(plan, palette, describe_cost(o.cost, plan), true);
  if (problem.cluster.mixed()) text += wrapped(describe_groups(problem, e.candidate), "  - ");
  if (o.out.verbose) text += "\n" + describe_memory_table(plan) + describe_evidence(plan);
  return text;
}

// "962 ms less idle time and 10 ms less computing": parts of the step that change in one direction.
std::string changes(const std::vector<std::pair<double, const char*>>& parts, bool less, double least_s) {
  std::vector<std::string> words;
  for (const auto& [saved_s, what] : parts) {
    if ((saved_s > 0.0) == less && std::abs(saved_s) >= least_s)
      words.push_back(
          fmt::format("{} {} {}", format_seconds(std::abs(saved_s)), less ? "less" : "more", what));
  }
  if (words.size() > 2) words[0] += ", " + words[1], words.erase(words.begin() + 1);
  return fmt::format("{}", fmt::join(words, " and "));
}

// What moving to `better` saves, and where.
std::string describe_saving(const SearchProblem& problem, const Candidate& mine, const Candidate& better) {
  const double saved = mine.evaluation.step_time_s - better.evaluation.step_time_s;
  const Breakdown a = breakdown(problem, mine), b = breakdown(problem, better);
  const std::vector<std::pair<double, const char*>> parts{
      {a.compute_s - b.compute_s, "computing"},
      {a.collectives_s - b.collectives_s, "communication"},
      {a.idle_s - b.idle_s, "idle time"}};
  const bool saves = saved >= 0.0;
  const double least_s = std::max(1e-12, 1e-3 * std::abs(saved));
  const std::string gains = changes(parts, saves, least_s), against = changes(parts, !saves, least_s);
  return fmt::format("{} {} per step ({}): {}{}{}.", saves ? "saves" : "costs",
                     format_seconds(std::abs(saved)),
                     format_percent(std::abs(saved) / mine.evaluation.step_time_s), gains,
                     gains.empty() || against.empty() ? "" : ", but ", against);
}

std::string describe_better(const SearchProblem& problem, const Candidate& mine, const Candidate& better,
                            const Plan& plan) {
  const Palette palette = Palette::of(stdout);
  std::string text = describe_choice(mine.evaluation.rejection ? "FITS INSTEAD" : "BETTER", plan, palette);
  text += wrapped(
      fmt::format("Moving to it {} It uses {} of {} ({}).", describe_saving(problem, mine, better),
                  format_bytes(double(better.evaluation.peak_bytes)),
                  format_bytes(double(problem.memory_limit_bytes)),
                  format_percent(double(better.evaluation.peak_bytes) / double(problem.memory_limit_bytes))),
      "  - ");
  return text;
}

// The same split with one after another of the changes that save memory; empty where they do not suffice.
std::string savers_that_fit(const Estimated& mine, const PlanOptions& o) {
  Layout layout = mine.plan.layout;
  std::string options, words;
  for (const LayoutChange& change : layout_changes()) {
    Layout next = layout;
    if (mine.fits() || !change.saves_memory || !change.make(next)) continue;
    const auto other = estimate_instead(o.request, next);
    if (!other) continue;
    layout = next;
    options += std::string(" ") + change.option;
    words += std::string(words.empty() ? "" : ", ") + change.words;
    if (!other->fits()) continue;
    const Prediction& p = other->plan.prediction;
    return "\n" + wrapped(fmt::format("The same layout fits {}: add{}. {}; memory {}.", words, options,
                                      describe_step(p.step_time_s, p.confidence),
                                      format_bytes(double(reports::peak_bytes(other->plan)))));
  }
  return "";
}

// What a search finds that is better than the estimated layout.
std::string advice(const Estimated& mine, const PlanOptions& o) {
  PlanRequest request = o.request;
  request.bounds = {};
  request.layers_per_stage.clear();
  if (mine.plan.corrected)
    return "\n" +
           describe_next({{o.again, "all layouts, in the order that the runs correct"}}, Palette::of(stdout));
  const auto resolved = resolve(request);  // its notes stand on the screen already
  SearchProblem& problem = resolved->problem;
  problem.near_misses = false;
  bool unlikely = false;
  const auto search = [&] {
    const Stoppable stoppable;
    auto found = recommended_search(problem, 1, progress_line());
    unlikely = found->result.best.empty() && has_default_margin(*resolved);
    return unlikely ? likeliest_search(*resolved, progress_line()) : std::move(found);
  }();
  if (search->result.best.empty())
    return "\n" + wrapped(mine.fits()
                              ? "No other layout fits among those that the search has for this framework."
                              : "No layout of this cluster fits. mpt-plan without a layout says what would.");
  const Candidate& best = search->result.best.front();
  const std::string proof =
      wrapped(describe_certificate(search->result.certificate, best.evaluation.step_time_s, waited_s()));
  const double gain = 1.0 - best.evaluation.step_time_s / mine.plan.prediction.step_time_s;
  const bool roomier = best.evaluation.peak_bytes < mine.candidate.evaluation.peak_bytes;
  if (unlikely && mine.fits() && !roomier)
    return "\n" + wrapped("No layout is 90% likely to fit, and none is likelier than this one.") + proof;
  if (!unlikely && mine.fits() && gain <= 1e-9)
    return "\nNo layout that leaves some memory free is faster.\n" + proof;
  const Plan better = plan_of(*search, request);
  std::string text = savers_that_fit(mine, o);
  if (unlikely) text += "\n" + wrapped("No layout is 90% likely to fit. The likeliest is:");
  text += "\n" + describe_better(problem, mine.candidate, best, better);
  const std::string against = describe_against_best(mine.plan, better, o.measured);
  if (!against.empty()) text += wrapped(against, "  - ");
  if (o.again.empty()) return text + "\n" + proof;
  std::string again = o.again;
  if (!request.memory.empty()) again += " --memory " + shell_word(request.memory);
  return text + "\n" +
         describe_next({{again + " -o plan.json", "the better layout as a plan"}}, Palette::of(stdout)) +
         "\n" + proof;
}

// A plan's own layout leaves nothing open.
void check_plan_options(const CLI::App& command, const EstimateOptions& o) {
  if (o.plan.empty()) return;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0 || option->get_group() != "Layout") continue;
    throw UserError(Problem{"--plan", "excludes " + option->get_name(), "one or the other",
                            "the plan holds its layout; leave --plan out and name all of it"});
  }
}

// The command that finds the better layout: a search with the same options, which a plan or request file may
// hold. Bounds in such a file cannot be taken out again: then there is no command.
std::string search_again(const CLI::App& command, const EstimateOptions& o) {
  std::string again = command_again(command, shell_word(command.get_parent()->get_name()),
                                    {"Layout", "--plan", "--memory", "--measured", "--output", "--report",
                                     "--trace", "--operators", "--verbose", "--check"});
  if (!o.plan.empty()) again += " --request " + shell_word(o.plan);
  const CLI::Option* const request = command.get_option("--request");
  const std::string file = !o.plan.empty() ? o.plan : request->count() > 0 ? request->results().back() : "";
  const bool bounded = !file.empty() && load_request(file).bounds != SearchBounds{};
  return bounded ? "" : again;
}

// `given`: the layout is somebody's own file, which no option changes.
std::string describe_stages(const Plan& plan, bool given) {
  if (!plan.faster_stages) return "";
  const auto& [layers, step_s] = *plan.faster_stages;
  return describe_notes(
      {fmt::format("Layers {} per stage would take {}, {} less{}.", fmt::join(layers, " "),
                   format_seconds(step_s), format_percent(1.0 - step_s / plan.prediction.step_time_s),
                   given ? "" : fmt::format(" (--layers-per-stage {})", fmt::join(layers, ",")))},
      Palette::of(stdout));
}

std::string estimate_text(const Estimated& e, const PlanOptions& o, bool given) {
  const SearchProblem& problem = e.resolved->problem;
  const Layout& layout = e.plan.layout;
  std::string text = describe_estimate(e, o, given) + describe_stages(e.plan, given) +
                     describe_notes(e.plan.notes, Palette::of(stdout)) +
                     describe_judgement(e.plan, o.measured);
  if (o.operators) text += "\n" + describe_operators(problem, layout);
  for (const std::string& note : {describe_host(o.request, e.plan), idle_cost(o.cost, o.cost.price > 0.0)}) {
    if (!note.empty()) text += describe_notes({note}, Palette::of(stdout));
  }
  return text;
}

}  // namespace

std::string describe_host(const PlanRequest& request, const Plan& plan) {
  constexpr double kWorthSaying = 0.03;
  const Execution& execution = plan.layout.execution;
  if (execution.framework == Execution{}.framework || execution.kernels.graphs ||
      execution.host.launch_us <= 0.0)
    return "";
  PlanRequest with_graphs = request;
  with_graphs.execution.emplace_back("graphs=true");
  const auto resolved = resolve(with_graphs);
  Layout graphed = plan.layout;
  graphed.execution = resolved->problem.execution;
  const double graphed_s =
      evaluate_regardless(resolved->problem, estimate(resolved->problem, graphed)).step_time_s;
  const double less = 1.0 - graphed_s / plan.prediction.step_time_s;
  if (less < kWorthSaying) return "";
  return fmt::format(
      "GPUs wait for the host: with CUDA graphs (--execution graphs=true) a step would take {}, {} less.",
      format_seconds(graphed_s), format_percent(less));
}

int score(const PlanOptions& o, bool given) {
  if (o.print_request) {
    fmt::print("{}", request_to_text(o.request));
    return kExitOk;
  }
  Estimated e = estimate(o.request);
  e.plan.faster_stages = faster_stages(e);
  if (o.out.json) {
    print_notes(e.plan.notes);
    std::fputs(describe_judgement(e.plan, o.measured).c_str(), stderr);
  }
  std::string text = o.out.json ? plan_to_text(e.plan) : estimate_text(e, o, given);
  write_files(o.out, e.plan, o.cost, &e.resolved->problem);
  if (!o.out.json) text += advice(e, o);
  print_answer(o.out, text);
  if (!o.check) return kExitOk;
  if (!e.fits() || e.refusal) return kExitRunFailed;
  return may_not_fit(as_observed(e.plan).prediction.confidence) ? kExitMayNotFit : kExitOk;
}

std::function<int()> add_estimate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("estimate", "Score a layout that you have, and see what would be better");
  auto o = std::make_shared<EstimateOptions>();
  command
      ->add_option_function<std::string>(
          "--plan",
          [o](const std::string& file) {
            o->plan = file;
            o->problem.request = request_of(load_plan(file));
          },
          "Score the layout of this plan file, here or on another --cluster or --model (default: the "
          "layout that the options name)")
      ->type_name("FILE")
      ->trigger_on_parse()
      ->group("What to score");
  declare_lines(*command, o->lines);
  declare_request_file(*command, o->problem);
  declare_problem(*command, o->problem.request);
  declare_layout(*command, o->problem.request);
  add_number(*command, "--layers-per-stage", o->problem.request.layers_per_stage,
             "Decoder layers of each pipeline stage, in order, separated by commas (default: even stages)",
             between(0, 100000))
      ->expected(1, CLI::detail::expected_max_vector_size)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->group("Layout");
  declare_observed(*command, o->problem);
  declare_check(*command, o->problem);
  declare_measured(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  command
      ->add_flag("--operators", o->problem.operators,
                 "Print what a forward and a backward are made of: operators, their speed, and collectives")
      ->group("Output");
  declare_cost(*command, o->problem.cost);
  command->footer(
      "Examples:\n"
      "  mpt-plan estimate --model llama3-70b --cluster dgx-h100:8 --global-batch 256 --tp 8 --pp 4 --sp on\n"
      "  mpt-plan estimate --plan plan.json --cluster dgx-a100:8");
  return [command, o] {
    check_lines(*command, o->lines);
    if (!o->lines.file.empty()) return answer_lines(o->lines);
    check_plan_options(*command, *o);
    read_runs(o->problem, o->plan.empty() ? o->problem.request_file : o->plan);
    o->problem.again = search_again(*command, *o);
    return score(o->problem, o->problem.request.layout.has_value());
  };
}

}  // namespace mpt::planner
