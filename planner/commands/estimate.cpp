// SPDX-License-Identifier: Apache-2.0

// mpt-plan estimate: scores a layout that somebody has, whether it fits or not, and says what would be
// better.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <memory>

#include "base/error.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "core/schedule_catalog.h"
#include "frameworks/supports.h"
#include "planner/commands/commands.h"
#include "planner/diagnose/judge.h"
#include "planner/explain/evidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/operators.h"
#include "planner/explain/placement.h"
#include "planner/explain/streams.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

struct EstimateOptions {
  std::string plan;
  PlanOptions problem;
};

template <class T>
T one(const std::vector<T>& values, T otherwise) {
  return values.empty() ? otherwise : values.front();
}

// The layout that the options name; what they leave out is 1, off or what the rest leaves.
Layout layout_from(const SearchProblem& problem) {
  const SpaceBounds& b = problem.bounds;
  Layout l;
  l.tensor = one<int64_t>(b.tensor, 1);
  l.context = one<int64_t>(b.context, 1);
  l.pipeline = one<int64_t>(b.pipeline, 1);
  l.expert = one<int64_t>(b.expert, 1);
  if (const auto rejection = check_degrees(l))  // else their products mean nothing
    throw UserError(Problem{"layout", rejection->reason, "", "choose smaller degrees"});
  const int64_t fixed = l.tensor * l.context * l.pipeline;
  l.data = one<int64_t>(b.data, std::max<int64_t>(1, problem.ranks / fixed));
  // Experts are split like the dense layers where that leaves room for them, else they stay whole.
  const int64_t pool = l.tensor * l.context * l.data;
  l.expert_tensor = one<int64_t>(b.expert_tensor, pool % (l.expert * l.tensor) == 0 ? 0 : 1);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  l.sequence_parallel = one(b.sequence_parallel, l.expert > 1 && l.tensor > 1);
  l.context_method = one(b.context_methods, ContextMethod::ring);
  l.zero = one<int64_t>(b.zero, 0);
  l.shard = l.zero > 0 ? l.replicas() : 1;
  l.offload_optimizer = one(b.offload, false);
  l.order = one(b.orders, RankOrder::pipeline_outermost);
  l.micro_batch = one<int64_t>(b.micro_batch, 1);
  l.precision = problem.precision;
  l.execution = problem.execution;
  l.recompute = one(b.recomputes, Recompute::none);
  problem.set_overlaps(l);
  l.chunks = one<int64_t>(b.chunks, 1);
  l.schedule = one<std::string>(b.schedules, l.chunks > 1 ? "interleaved" : "1f1b");
  const ScheduleEntry& entry = find_schedule(l.schedule, "--schedule");
  if (b.chunks.empty()) l.chunks = entry.min_chunks;
  if (l.chunks < entry.min_chunks || l.chunks > entry.max_chunks) {
    throw UserError(Problem{"--chunks", std::to_string(l.chunks),
                            fmt::format("{} to {} with {}", entry.min_chunks, entry.max_chunks, l.schedule),
                            ""});
  }
  // Of more stages than layers there is nothing to split; check() says so.
  if (l.stages() <= problem.model.layers + 2)
    l.layers_per_stage = even_stages(problem.model.layers, l.stages());
  return l;
}

void check(const SearchProblem& problem, const Layout& layout) {
  if (layout.ranks() > problem.cluster.devices) {
    throw UserError(
        Problem{"layout " + layout_name(layout), fmt::format("{} ranks", layout.ranks()),
                fmt::format("at most the {} devices of {}", problem.cluster.devices, problem.cluster.name),
                "change a degree, or give a larger --cluster"});
  }
  if (layout.ranks() < problem.ranks) {
    fmt::print(stderr, "mpt-plan: note: {} ranks of the layout leave {} of {} devices idle\n", layout.ranks(),
               problem.ranks - layout.ranks(), problem.ranks);
  }
  if (auto rejection = check_layout(problem.model, layout, problem.workload)) {
    throw UserError(Problem{"layout " + layout_name(layout), rejection->reason,
                            "a layout that divides the model and the batch",
                            "change the degree or --global-batch"});
  }
}

// What the layout leaves open and a run would have to be asked for.
std::string defaults_of(const SearchProblem& problem, const Layout& l) {
  const SpaceBounds& b = problem.bounds;
  std::vector<std::string> said;
  if (b.zero.empty() && l.replicas() > 1) said.push_back(fmt::format("--zero {}", l.zero));
  if (b.sequence_parallel.empty() && l.tensor > 1)
    said.push_back(fmt::format("--sp {}", l.sequence_parallel ? "on" : "off"));
  return said.empty() ? "" : fmt::format("assumed: {}", fmt::join(said, ", "));
}

std::string describe_verdict(const Plan& plan, const Candidate& candidate, const Palette& palette) {
  const auto& rejection = candidate.evaluation.rejection;
  if (!rejection) return palette.good("It fits.") + "\n";
  const std::string heading = "DOES NOT FIT by " + format_bytes(rejection->needed - rejection->available);
  const std::string text =
      wrapped(fmt::format("{}: stage {} needs {} per {}, there are {}", heading, rejection->stage,
                          format_bytes(rejection->needed), reports::device_word(plan.cluster),
                          format_bytes(rejection->available)));
  return palette.bad(heading) + text.substr(heading.size());
}

std::string describe_estimate(const SearchProblem& problem, const Plan& plan, const Candidate& candidate,
                              const PlanOptions& o, bool given) {
  const Palette palette = Palette::of(stdout);
  std::string text =
      describe_task(plan, palette) + "\n" +
      describe_choice("YOUR LAYOUT", plan, palette, given ? "" : defaults_of(problem, plan.layout)) + "\n" +
      describe_verdict(plan, candidate, palette) +
      describe_figures(plan, palette, describe_cost(o.cost, plan), true);
  if (problem.cluster.mixed()) text += wrapped(describe_groups(problem, candidate), "  - ");
  if (o.out.verbose) text += "\n" + describe_memory_table(plan) + describe_evidence(plan);
  return text;
}

// What moving to `better` saves, and where.
std::string describe_saving(const SearchProblem& problem, const Candidate& mine, const Candidate& better) {
  const double saved = mine.evaluation.step_time_s - better.evaluation.step_time_s;
  const Breakdown a = breakdown(problem, mine), b = breakdown(problem, better);
  const std::pair<double, const char*> parts[] = {{a.compute_s - b.compute_s, "computing"},
                                                  {a.collectives_s - b.collectives_s, "communication"},
                                                  {a.idle_s - b.idle_s, "idle"}};
  std::string where;
  for (const auto& [seconds, what] : parts) {
    if (std::abs(seconds) < 1e-3 * std::abs(saved)) continue;
    where += where.empty() ? ": " : ", ";
    where += fmt::format("{}{}{} {}", seconds < 0 ? "but " : "", format_seconds(std::abs(seconds)),
                         seconds < 0 ? " more" : "", what);
  }
  return fmt::format("{} {} per step ({}){}.", saved >= 0 ? "saves" : "costs",
                     format_seconds(std::abs(saved)),
                     format_percent(std::abs(saved) / mine.evaluation.step_time_s), where);
}

std::string describe_better(const SearchProblem& problem, const Candidate& mine, const Candidate& better,
                            const Plan& plan) {
  const Palette palette = Palette::of(stdout);
  std::string text = describe_choice("BETTER", plan, palette);
  text += wrapped(
      fmt::format("Moving to it {} It uses {} of {} ({}).", describe_saving(problem, mine, better),
                  format_bytes(double(better.evaluation.peak_bytes)),
                  format_bytes(double(problem.memory_limit_bytes)),
                  format_percent(double(better.evaluation.peak_bytes) / double(problem.memory_limit_bytes))),
      "  - ");
  return text;
}

std::string advice(const SearchProblem& given, const Candidate& mine, const PlanOptions& o) {
  SearchProblem problem = given;
  problem.bounds = {};
  problem.near_misses = false;
  const auto search = watched_search(problem, 1);
  if (search->result.best.empty())
    return "\n" + wrapped("No layout of this cluster fits. mpt-plan without a layout says what would.");
  const bool fits = !mine.evaluation.rejection;
  const std::string proof = wrapped(describe_certificate(search->result.certificate));
  const auto gain_of = [&](const Candidate& c) {
    return 1.0 - c.evaluation.step_time_s / mine.evaluation.step_time_s;
  };
  if (fits && gain_of(search->result.best.front()) <= 1e-9)
    return "\nNo layout with room in memory is faster.\n" + proof;
  const Plan better = make_plan_of(*search);
  std::string text = "\n" + describe_better(given, mine, search->result.best.front(), better);
  if (o.again.empty()) return text + "\n" + proof;
  std::string again = o.again;
  if (!o.memory.empty()) again += " --memory " + shell_word(o.memory);
  return text + "\n" +
         describe_next({{again + " -o plan.json", "the better layout as a plan"}}, Palette::of(stdout)) +
         "\n" + proof;
}

// The problem on the devices that the layout uses, where it leaves some idle; nothing where all are used.
std::unique_ptr<PreparedSearch> on_used_part(const PlanOptions& o, const Plan* given,
                                             const SearchProblem& problem, const Layout& layout) {
  if (layout.ranks() >= problem.ranks || problem.cluster.mixed() || !o.profile.empty()) return nullptr;
  PlanOptions part = o;
  part.ranks = layout.ranks();
  part.memory = std::to_string(problem.memory_limit_bytes) + "B";
  return prepare(part, given);
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

}  // namespace

std::string describe_host(const PlanOptions& o, const Plan* given, const Layout& layout, double step_time_s) {
  constexpr double kWorthSaying = 0.03;
  const Execution& execution = layout.execution;
  if (execution.framework == Execution{}.framework || execution.graphs || execution.launch_us <= 0.0)
    return "";
  PlanOptions with_graphs = o;
  with_graphs.execution.emplace_back("graphs=true");
  const auto prepared = prepare(with_graphs, given);
  Layout graphed = layout;
  graphed.execution = prepared->problem.execution;
  const double graphed_s =
      evaluate_regardless(prepared->problem, estimate(prepared->problem, graphed)).step_time_s;
  const double less = 1.0 - graphed_s / step_time_s;
  if (less < kWorthSaying) return "";
  return fmt::format(
      "GPUs wait for the host: with CUDA graphs (--execution graphs=true) a step would take {}, {} less.",
      format_seconds(graphed_s), format_percent(less));
}

// A layout that somebody runs fits if it fits a GPU's memory to the last byte.
PlanOptions without_margin(PlanOptions o) {
  if (o.memory.empty() && o.memory_margin.empty()) o.memory_margin = "0";
  return o;
}

std::string cannot_run(const SearchProblem& problem, const Layout& layout) {
  if (!problem.framework) return "";
  const auto rejection = frameworks::supports(*problem.framework, problem.model, layout, problem.workload);
  return rejection
             ? describe_notes({"This layout cannot run: " + rejection->reason + "."}, Palette::of(stdout))
             : "";
}

void score(const PlanOptions& o, const Plan* given) {
  const auto prepared = prepare(without_margin(o), given);
  const SearchProblem& problem = prepared->problem;
  Layout layout = given != nullptr ? given->layout : layout_from(problem);
  layout.precision = problem.precision;
  layout.execution = problem.execution;
  if (given != nullptr && !o.overlaps.empty()) problem.set_overlaps(layout);
  check(problem, layout);
  const auto used = on_used_part(o, given, problem, layout);
  const SearchProblem& priced = used ? used->problem : problem;
  Candidate candidate{estimate(priced, layout), {}};
  candidate.evaluation = evaluate_regardless(priced, candidate.estimate);
  const Plan plan = plan_of(problem, candidate);
  const std::string judgement = describe_judgement(plan, o.measured);
  if (o.out.json) fmt::print(stderr, "{}", judgement);
  std::string text;
  if (!o.out.json) {
    text = describe_estimate(problem, plan, candidate, o, given != nullptr) + cannot_run(problem, layout) +
           judgement;
    if (o.operators) text += "\n" + describe_operators(problem, layout);
    if (o.streams) {
      const Evaluation& whole = candidate.evaluation;
      text += "\n" + describe_streams(simulate_streams(problem, layout, whole.program), whole.step_time_s);
    }
    const std::string host = describe_host(o, given, layout, candidate.evaluation.step_time_s);
    if (!host.empty()) text += describe_notes({host}, Palette::of(stdout));
    text += advice(prepare(o, given)->problem, candidate, o);
  }
  write_outputs(o.out, plan, text, o.cost, &problem);
}

std::function<int()> add_estimate(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("estimate", "Score a layout that you have, and see what would be better");
  auto o = std::make_shared<EstimateOptions>();
  command
      ->add_option(
          "--plan", o->plan,
          "Score the layout of this plan file, here or on another --cluster or --model (default: the "
          "layout that the options name)")
      ->type_name("FILE")
      ->group("What to score");
  declare_problem(*command, o->problem);
  declare_space(*command, o->problem.space, false);
  declare_measured(*command, o->problem);
  declare_outputs(*command, o->problem.out);
  command
      ->add_flag("--operators", o->problem.operators,
                 "Print what a forward and a backward are made of: operators, their speed, and collectives")
      ->group("Output");
  command
      ->add_flag("--streams", o->problem.streams,
                 "Simulate the step operator by operator: what each stream does, alone and beside compute")
      ->group("Output");
  declare_cost(*command, o->problem.cost);
  command->footer(
      "Examples:\n"
      "  mpt-plan estimate --model llama3-70b --cluster dgx-h100:8 --global-batch 256 --tp 8 --pp 4 --sp on\n"
      "  mpt-plan estimate --plan plan.json --cluster dgx-a100:8");
  return [command, o] {
    check_plan_options(*command, *o);
    o->problem.again = command_again(*command, shell_word(command->get_parent()->get_name()),
                                     {"Layout", "--plan", "--memory", "--measured", "--output", "--report",
                                      "--trace", "--operators", "--streams", "--verbose"});
    std::vector<NamedFile> inputs = input_files(o->problem);
    inputs.push_back({"--plan", o->plan});
    check_outputs(o->problem.out, inputs);
    if (o->plan.empty()) {
      score(o->problem, nullptr);
    } else {
      const Plan plan = load_plan(o->plan);
      score(o->problem, &plan);
    }
    return kExitOk;
  };
}

}  // namespace mpt::planner
