// SPDX-License-Identifier: Apache-2.0

// What the commands share: searching, and writing results.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/interruption.h"
#include "base/json.h"
#include "base/outputs.h"
#include "base/quantity.h"
#include "planner/commands/commands.h"
#include "planner/explain/evidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/nothing_fits.h"
#include "planner/explain/restrictions.h"
#include "planner/explain/streams.h"
#include "planner/explain/utilisation.h"
#include "planner/search/search.h"
#include "planner/stoppable.h"
#include "reports/html.h"
#include "reports/trace.h"
#include "reports/utilisation.h"

namespace mpt::planner {

namespace {

// A line in a terminal, rewritten a few times a second; nothing in a pipe.
class ProgressLine {
 public:
  /// `of`: what is searched, where one search is one of several.
  explicit ProgressLine(const std::string& of)
      : title_(of.empty() ? "searching" : "searching " + of), visible_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_s_ > 0.0) fmt::print(stderr, "\r\033[K");
  }
  void show(const SearchProgress& p) {
    constexpr double kEvery = 0.2, kFirst = 0.5;
    if (!visible_ || p.seconds < kFirst || p.seconds - shown_s_ < kEvery) return;
    shown_s_ = p.seconds;
    std::string best =
        std::isfinite(p.best_s) ? "best so far " + format_seconds(p.best_s) + " per step" : "none fits yet";
    if (std::isfinite(p.best_s) && p.bound_s > 0.0)
      best += fmt::format(" (at most {} more to gain)",
                          format_percent(std::max(0.0, 1.0 - p.bound_s / p.best_s)));
    fmt::print(stderr, "\r{}: {} layouts, {}, {}\033[K", title_, format_magnitude(double(p.layouts)), best,
               format_seconds(p.seconds));
    std::fflush(stderr);
  }

 private:
  std::string title_;
  bool visible_;
  double shown_s_ = 0.0;
};

int kinds_of_parallelism(const Layout& l) {
  return int(l.tensor > 1) + int(l.context > 1) + int(l.pipeline > 1) + int(l.data > 1) + int(l.expert > 1);
}

// Layouts whose times differ by less than anybody can measure count as equal: the first is then the one with
// most memory left, and of those the one with the fewest kinds of parallelism.
void prefer_room(std::vector<Candidate>& best) {
  if (best.empty()) return;
  const double most_s = (1.0 + kEqualTimes) * best.front().evaluation.step_time_s;
  const auto end = std::find_if(best.begin(), best.end(),
                                [&](const Candidate& c) { return c.evaluation.step_time_s > most_s; });
  const auto roomiest = std::min_element(best.begin(), end, [](const Candidate& a, const Candidate& b) {
    const auto rank = [](const Candidate& c) {
      return std::pair(c.evaluation.peak_bytes, kinds_of_parallelism(c.estimate.layout));
    };
    return rank(a) < rank(b);
  });
  std::rotate(best.begin(), roomiest, roomiest + 1);
}

}  // namespace

std::unique_ptr<ArrangedSearch> watched_search(const SearchProblem& problem, size_t keep,
                                               const std::string& of) {
  // As many as are looked through for equals, however few are asked for: the first is the same then.
  constexpr size_t kConsidered = 8;
  ProgressLine line(of);
  const Stoppable stoppable;
  auto found = search_arrangements(problem, std::max(keep, kConsidered), [&](const SearchProgress& p) {
    line.show(p);
    return !stop_requested();
  });
  std::vector<Candidate>& best = found->result.best;
  prefer_room(best);
  if (best.size() > keep) best.erase(best.begin() + ptrdiff_t(keep), best.end());
  return found;
}

Plan make_plan_of(const ArrangedSearch& search) {
  Plan plan = make_plan(search.result, search.problem);
  plan.restrictions = restrictions_of(search.problem.bounds);
  for (const std::string& note : search.notes) plan.reasons.push_back("On " + note + ".");
  return plan;
}

namespace {

// The fastest layout that fills memory to the last, where the margin costs time: a row behind the ranking.
// Both searches together keep to the time limit.
void add_tighter(const PlanOptions& o, Plan& plan) {
  constexpr double kMostSeconds = 10.0;
  const bool by_default = o.memory.empty() && o.memory_margin.empty();
  if (!by_default || plan.cluster.mixed() || !plan.search.optimal || stop_requested()) return;
  PlanOptions full = o;
  full.memory_margin = "0";
  full.time_limit_s = std::max(1e-3, std::min(kMostSeconds, o.time_limit_s - plan.search.seconds));
  const auto prepared = prepare(full);
  if (prepared->problem.memory_limit_bytes <= plan.memory_limit_bytes) return;
  const PlanOrReason tighter = plan_or_reason(std::move(prepared->problem));
  if (!tighter.plan || tighter.plan->prediction.step_time_s >= plan.prediction.step_time_s) return;
  plan.ranking.push_back(tighter.plan->ranking.front());
}

}  // namespace

Plan search_plan(const PlanOptions& o, const PreparedSearch& prepared, size_t keep) {
  const auto search = watched_search(prepared.problem, keep);
  if (search->result.best.empty()) {
    Problem problem = why_nothing_fits(search->result, search->problem);
    const std::string remedy = remedy_of_nothing_fits(o, search->result, search->problem);
    if (!remedy.empty()) problem.remedy = remedy;
    throw UserError(std::move(problem));
  }
  Plan plan = make_plan_of(*search);
  add_tighter(o, plan);
  return plan;
}

PlanOrReason plan_or_reason(SearchProblem problem) {
  problem.near_misses = false;
  const auto search = watched_search(problem, 1);
  if (!search->result.best.empty()) return {make_plan_of(*search), ""};
  if (search->result.over_memory.empty()) return {std::nullopt, "no layout divides"};
  return {std::nullopt, fmt::format("nothing fits: at least {} per {}",
                                    format_bytes(search->result.over_memory.front().nearest.needed),
                                    reports::device_word(problem.cluster))};
}

Plan plan_of(const SearchProblem& problem, const Candidate& candidate) {
  SearchResult one;
  one.best.push_back(candidate);
  one.certificate.layouts = one.certificate.simulated = 1;
  return make_plan(one, problem);
}

std::vector<NamedFile> input_files(const PlanOptions& o) {
  const std::filesystem::path model = o.model, config = model / "config.json";
  return {{"--model", model},       {"--model", config},      {"--cluster", o.cluster},
          {"--profile", o.profile}, {"--kernels", o.kernels}, {"--from", o.from}};
}

void check_outputs(const OutputOptions& o, const std::vector<NamedFile>& inputs) {
  check_distinct_files(inputs, {{"--output", o.output}, {"--report", o.report}, {"--trace", o.trace}});
  const std::pair<const char*, const std::string*> files[] = {
      {"--output ", &o.output}, {"--report ", &o.report}, {"--trace ", &o.trace}};
  for (const auto& [option, file] : files) {
    if (!file->empty()) check_writable(*file, option + *file);
  }
}

// With what is inside instructions, where the problem is at hand that prices it.
void write_trace(const std::string& file, const Plan& plan, const StepProgram& program,
                 const Timeline& timeline, const SearchProblem* problem) {
  std::string trace;
  if (problem != nullptr && stream_tasks(*problem, plan.layout, program) <= kMostTasks) {
    const StreamStep step = simulate_streams(*problem, plan.layout, program);
    trace = reports::trace_json(program, {{"predicted", step.timeline}}, inner_spans(step));
  } else {
    trace = reports::trace_json(program, {{"predicted", timeline}});
  }
  write_file_atomically(file, trace);
}

void write_and_print(const OutputOptions& o, const Plan& plan, const std::string& text,
                     const CostOptions& cost, const SearchProblem* problem) {
  if (!o.output.empty()) save_plan(plan, o.output);
  if (!o.report.empty() || !o.trace.empty()) {
    const StepProgram program = program_of(plan);
    const Contention contention{plan.rate_by_active_ranks, plan.layout.tensor * plan.layout.replicas()};
    const Timeline timeline = simulate(program, durations_of(plan, program), contention);
    if (!o.report.empty()) {
      reports::Facts facts;
      if (!cost.tokens.empty()) {
        const std::string line = describe_cost(cost, plan);
        facts.emplace_back("Training", line.substr(0, line.size() - 1));
      }
      write_file_atomically(o.report, reports::plan_report(plan, program, timeline, facts));
    }
    if (!o.trace.empty()) write_trace(o.trace, plan, program, timeline, problem);
  }
  fmt::print("{}", text);
  if (o.json) return;
  for (const std::string& file : {o.output, o.report, o.trace}) {
    if (!file.empty()) fmt::print("wrote {}\n", file);
  }
}

size_t files_of(const OutputOptions& o) {
  return size_t(!o.output.empty()) + size_t(!o.report.empty()) + size_t(!o.trace.empty());
}

void write_outputs(const OutputOptions& o, const Plan& plan, const std::string& text, const CostOptions& cost,
                   const SearchProblem* problem) {
  write_and_print(o, plan, o.json ? plan_to_text(plan) : text, cost, problem);
}

std::string describe_cost(const CostOptions& o, const Plan& plan) {
  if (o.tokens.empty()) return "";
  const TrainingCost cost = training_cost(plan, parse_count(o.tokens, "--tokens"), o.price, o.goodput);
  std::string text = fmt::format("{} tokens take {:.1f} days, {} device-hours", o.tokens, cost.days,
                                 format_magnitude(cost.device_hours));
  if (o.price > 0.0) text += fmt::format(", {} at {} a device-hour", format_magnitude(cost.price), o.price);
  return text + ": " + describe_goodput(o) + "\n";
}

std::string describe_goodput(const CostOptions& o) {
  return o.goodput < 1.0
             ? fmt::format("failures, saving and evaluation take {} of the time (--goodput {})",
                           format_percent(1.0 - o.goodput), o.goodput)
             : "no failures, saving or evaluation are in it (--goodput 0.9 would leave a tenth for them)";
}

}  // namespace mpt::planner
