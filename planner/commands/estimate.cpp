// SPDX-License-Identifier: Apache-2.0

// mpt-plan estimate: prices a layout that the user has, whether it fits
// or not, and names a better one.

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <memory>

#include "base/clock.h"
#include "base/command_line.h"
#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/plan_words.h"
#include "planner/answer/doctor.h"
#include "planner/answer/recommend.h"
#include "planner/commands/commands.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/confidence.h"
#include "planner/explain/details.h"
#include "planner/explain/explain.h"
#include "planner/explain/operators.h"
#include "planner/explain/plan_parts.h"
#include "planner/explain/utilisation.h"
#include "planner/observe/observed_plan.h"
#include "planner/observe/observed_run.h"
#include "planner/search/search.h"

namespace mpt::planner {
namespace {

struct EstimateOptions {
  std::string plan;
  LinesOptions lines;
  PlanOptions problem;
};

// Options that the layout leaves open, which a run would have to set.
std::string defaults_of(const SearchProblem& problem, const Layout& l) {
  const SearchBounds& b = problem.bounds;
  std::vector<std::string> said;
  if (b.zero.empty() && l.replicas() > 1) said.push_back(fmt::format("--zero {}", l.zero));
  if (b.sequence_parallel.empty() && l.tensor > 1 && !has_sequence_parallel_by_default(problem))
    said.push_back(fmt::format("--sp {}", l.sequence_parallel ? "on" : "off"));
  return said.empty() ? "" : fmt::format("assumed: {}", joined(said, ", "));
}

std::string describe_estimate(const Estimated& e, const PlanOptions& o, bool given) {
  const SearchProblem& problem = e.resolved->problem;
  const Plan& plan = e.plan;
  const Palette palette = Palette::of(stdout);
  auto text = describe_task(plan, palette) + "\n" +
              describe_choice("YOUR LAYOUT", plan, palette, given ? "" : defaults_of(problem, plan.layout)) +
              "\n" + describe_verdict(plan, e.lacks(), palette) +
              describe_figures(plan, palette, describe_cost(o.cost, plan), true);
  if (problem.cluster.mixed()) text += wrapped(describe_groups(problem, e.candidate), "  - ");
  if (o.out.verbose) text += "\n" + describe_memory_table(plan) + describe_evidence(plan);
  return text;
}

// The saving of a move to `better`; `where`: in which kinds of work. Both are corrected by observed runs.
// Memory is compared with the limit that the screen shows above.
std::string describe_better(const Estimated& estimated, const Plan& found, const std::string& where,
                            const PlanOptions& o) {
  const Plan mine = as_observed(estimated.plan), better = as_observed(found);
  const Confidence& sure = better.prediction.confidence;
  const double mine_s = mine.prediction.step_time_s, saved_s = mine_s - better.prediction.step_time_s;
  const auto peak = double(reports::peak_bytes(better)), limit = double(mine.memory_limit_bytes);
  const char* const heading = may_not_fit(sure) ? "LIKELIEST" : estimated.fits() ? "BETTER" : "FITS INSTEAD";
  const std::string against = describe_against_best(mine, better, o.measured);
  return "\n" + describe_choice(heading, better, Palette::of(stdout)) +
         wrapped(fmt::format("Moving to it {} {} per step ({}){}. It uses {} of {} ({}){}.",
                             saved_s >= 0.0 ? "saves" : "costs", format_seconds(std::abs(saved_s)),
                             format_percent(std::abs(saved_s) / mine_s), where, format_bytes(peak),
                             format_bytes(limit), format_percent(peak / limit),
                             sure.fits ? "; fits: " + describe_likelihood(*sure.fits) : ""),
                 "  - ") +
         (against.empty() ? "" : wrapped(against, "  - "));
}

// The same by a search with predictions that the runs correct, as they correct those of `mine`.
std::string advice_by_runs(const Estimated& mine, const PlanOptions& o, const PlanRequest& request) {
  const Stoppable stoppable;
  Problem why;
  const auto found = observed_plan(*resolve(request), progress_line(), why);
  const double mine_s = as_observed(mine.plan).prediction.step_time_s;
  const bool better = found && found->layout != mine.plan.layout &&
                      !(mine.fits() && as_observed(*found).prediction.step_time_s >= mine_s);
  std::string text = better ? describe_better(mine, *found, "", o)
                            : "\nBy the runs no layout that is likely to fit is faster.\n";
  if (o.again.empty()) return text;
  return text + "\n" +
         describe_next({{o.again, "all layouts, in the order that the runs correct"}}, Palette::of(stdout));
}

// A better layout than the estimated one, from a search.
std::string advice(const Estimated& mine, const PlanOptions& o) {
  PlanRequest request = o.request;
  request.bounds = {};
  request.layers_per_stage.clear();
  request.observed = mine.plan.request.observed;
  if (mine.plan.corrected) return advice_by_runs(mine, o, request);
  const auto resolved = resolve(request);  // its notes are on the screen already
  const SearchProblem& problem = resolved->problem;
  const auto search = [&] {
    const Stoppable stoppable;
    return likely_search(*resolved, progress_line());
  }();
  const bool unlikely = search->problem.memory_limit_bytes > problem.memory_limit_bytes;
  if (search->result.best.empty())
    return "\n" + wrapped(mine.fits()
                              ? "No other layout fits among those that the search has for this framework."
                              : "No layout of this cluster fits. mpt-plan without a layout says what would.");
  const Candidate& best = search->result.best.front();
  const std::string proof =
      wrapped(describe_certificate(search->result.certificate, best.evaluation.step_time_s, waited_s()));
  const double gain = 1.0 - best.evaluation.step_time_s / mine.plan.prediction.step_time_s;
  if (unlikely && mine.fits() && best.evaluation.peak_bytes >= mine.candidate.evaluation.peak_bytes)
    return "\n" + wrapped("No layout is 90% likely to fit, and none is likelier than this one.") + proof;
  if (!unlikely && mine.fits() && gain <= 1e-9)
    return "\nNo layout that leaves some memory free is faster.\n" + proof;
  const Plan better = plan_of(*search, request);
  std::string text = unlikely ? "\n" + wrapped("No layout is 90% likely to fit. The likeliest is:") : "";
  text += describe_better(mine, better, difference_of(problem, mine.candidate, best), o);
  if (o.again.empty()) return text + "\n" + proof;
  std::string again = o.again;
  if (!request.memory.empty()) again += " --memory " + shell_word(request.memory);
  return text + "\n" +
         describe_next({{again + " -o " + plan_file(o), "the better layout as a plan"}},
                       Palette::of(stdout)) +
         "\n" + proof;
}

// The command that finds the better layout: a search with the same options, which a plan or request file may
// hold. Bounds in such a file cannot be removed; then there is no command.
std::string search_again(const CLI::App& command, const EstimateOptions& o) {
  std::string again = command_again(command, shell_word(command.get_parent()->get_name()),
                                    {"Layout", "--plan", "--memory", "--measured", "--output", "--report",
                                     "--trace", "--operators", "--verbose", "--check"});
  if (!o.plan.empty()) again += " --request " + shell_word(o.plan);
  const std::string& file = o.problem.request_file;
  return !file.empty() && load_request(file).bounds != SearchBounds{} ? "" : again;
}

// `given`: the layout is from the user's file, which no option changes.
std::string describe_stages(const Plan& plan, bool given) {
  if (!plan.faster_stages) return "";
  const auto& [layers, step_s] = *plan.faster_stages;
  return describe_notes(
      {fmt::format("Layers {} per stage would take {}, {} less{}.", fmt::join(layers, " "),
                   format_seconds(as_observed(plan, step_s)),
                   format_percent(1.0 - step_s / plan.prediction.step_time_s),
                   given ? "" : fmt::format(" (--layers-per-stage {})", fmt::join(layers, ",")))},
      Palette::of(stdout));
}

std::string estimate_text(const Estimated& e, const PlanOptions& o, bool given) {
  const SearchProblem& problem = e.resolved->problem;
  const Layout& layout = e.plan.layout;
  auto text = describe_estimate(e, o, given) + describe_stages(e.plan, given) +
              describe_notes(e.plan.notes, Palette::of(stdout)) + describe_judgement(e.plan, o.measured);
  if (o.operators) text += "\n" + describe_operators(problem, layout);
  for (const std::string& note : {describe_host(o.request, e.plan), idle_cost(o.cost, o.cost.price > 0.0)})
    if (!note.empty()) text += describe_notes({note}, Palette::of(stdout));
  return text;
}

// The figure is from a run of this layout. It corrects all predictions, as --observed does.
void observe_measured(PlanOptions& o, Estimated& e) {
  if (o.measured.empty()) return;
  const std::string run = fmt::format("{}={:.6g}s", layout_name(e.plan.layout),
                                      parse_measurement(o.measured, "--measured", e.plan).step_time_s);
  if (!o.again.empty()) o.again += " --observed " + shell_word(run);
  o.request.observed.push_back(read_observed(run, "--measured", "").front());
  o.request.observed.back().exact = e.plan.layout;
  correct(o.request, e);
}

}  // namespace

std::string describe_host(const PlanRequest& request, const Plan& plan) {
  constexpr double kWorthSaying = 0.03;
  const Execution& execution = plan.layout.execution;
  if (execution.framework == Execution{}.framework || execution.kernels.graphs ||
      execution.host.launch_us <= 0.0)
    return "";
  // No token is dropped, so an expert's rows differ from step to step, and no graph can have its products
  // (megatron-core 0.19.2, transformer_config.py:2505). Others have no graphs for layers with experts.
  const bool experts = plan.model.moe() != nullptr;
  if (experts && (execution.kernels.router_graphs || execution.host.graphed_expert_layer_us <= 0.0))
    return "";
  const char* const how = experts ? "graphs of routers and what prepares the exchange (--cuda-graph-impl "
                                    "transformer_engine --cuda-graph-modules attn moe_router moe_preprocess; "
                                    "--execution router_graphs=true)"
                                  : "CUDA graphs (--execution graphs=true)";
  PlanRequest with_graphs = request;
  with_graphs.execution.emplace_back(experts ? "router_graphs=true" : "graphs=true");
  const auto resolved = resolve(with_graphs);
  Layout graphed = plan.layout;
  graphed.execution = resolved->problem.execution;
  const double graphed_s =
      evaluate_regardless(resolved->problem, estimate(resolved->problem, graphed)).step_time_s;
  const double less = 1.0 - graphed_s / plan.prediction.step_time_s;
  if (less < kWorthSaying) return "";
  return fmt::format("GPUs wait for the host: with {} a step would take {}, {} less.", how,
                     format_seconds(as_observed(plan, graphed_s)), format_percent(less));
}

int score(PlanOptions o, bool given) {
  if (o.print_request) {
    fmt::print("{}", request_to_text(o.request));
    return kExitOk;
  }
  Estimated e = estimate(o.request);
  observe_measured(o, e);
  e.plan.faster_stages = faster_stages(e);
  if (o.out.json) {
    print_notes(e.plan.notes);
    std::fputs(describe_judgement(e.plan, o.measured).c_str(), stderr);
  }
  std::string text = o.out.json ? plan_to_text(e.plan) : estimate_text(e, o, given);
  write_files(o.out, e.plan, o.cost, &e.resolved->problem);
  const Json doctor = o.doctor || (!o.out.json && !e.fits()) ? memory_doctor(o.request, e) : Json();
  if (o.doctor && o.out.json) text = json_text(doctor) + "\n";
  if (!o.out.json)
    text += (doctor.is_null() ? "" : describe_doctor(e, doctor)) + (o.doctor ? "" : advice(e, o));
  print_answer(o.out, text);
  if (!o.check) return kExitOk;
  if (!e.fits() || e.refusal) return kExitRunFailed;
  return may_not_fit(as_observed(e.plan).prediction.confidence) ? kExitMayNotFit : kExitOk;
}

std::function<int()> add_estimate(CLI::App& app, bool doctor) {
  CLI::App* command =
      doctor ? app.add_subcommand("doctor", "See what fills your GPUs, and which switches take less memory")
             : app.add_subcommand("estimate", "Score a layout that you have, and see what would be better");
  auto o = std::make_shared<EstimateOptions>();
  o->problem.doctor = doctor;
  command
      ->add_option_function<std::string>(
          "--plan",
          [o](const std::string& file) {
            o->plan = o->problem.request_file = file;
            o->problem.request = request_of(load_plan(file));
          },
          "Score the layout of this plan file, with what the options change of it, here or on another "
          "--cluster or --model (default: the layout that the options name)")
      ->type_name("FILE")
      ->trigger_on_parse()
      ->group("What to score");
  if (!doctor) declare_lines(*command, o->lines);
  declare_request_file(*command, o->problem);
  declare_problem(*command, o->problem.request);
  declare_layout(*command, o->problem.request);
#include "generated/StageOptions.inc"
  declare_observed(*command, o->problem);
  declare_judged(*command, o->problem);
  declare_outputs(*command, o->problem.out);
#include "generated/OperatorOptions.inc"
  declare_cost(*command, o->problem.cost);
  const std::string name = command->get_name();
  command->footer(
      "Examples:\n"
      "  mpt-plan " +
      name +
      " --model llama3-70b --cluster dgx-h100:8 --global-batch 256 --tp 8 --pp 4 --sp on\n"
      "  mpt-plan " +
      name + " --plan plan.json --cluster dgx-a100:8");
  return [command, o] {
    if (!o->problem.doctor) check_lines(*command, o->lines);
    if (!o->lines.file.empty()) return answer_lines(o->lines);
    read_runs(o->problem, o->problem.request_file);
    o->problem.again = search_again(*command, *o);
    return score(o->problem, o->problem.request.layout.has_value());
  };
}

}  // namespace mpt::planner
