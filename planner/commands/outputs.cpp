// SPDX-License-Identifier: Apache-2.0

// Functions that the commands share: searching, stopping, and writing results.

#include <unistd.h>

#include <cmath>
#include <iterator>
#include <set>

#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "base/text.h"
#include "frameworks/export_targets.h"
#include "planner/answer/recommend.h"
#include "planner/commands/commands.h"
#include "planner/explain/utilisation.h"
#include "reports/html.h"
#include "reports/next_steps.h"
#include "reports/trace.h"

namespace mpt::planner {

namespace {

class ProgressLine {
 public:
  ProgressLine() : visible_(isatty(STDERR_FILENO) == 1) {}
  ~ProgressLine() {
    if (shown_s_ > 0.0) std::fputs("\r\033[K", stderr);
  }
  // `what`: the name of this search if there are several.
  void show(const std::string& what, const SearchProgress& p) {
    constexpr double kEvery = 0.2, kFirst = 0.5;
    if (p.seconds < shown_s_) shown_s_ = 0.0;  // another search
    if (!visible_ || p.seconds < kFirst || p.seconds - shown_s_ < kEvery) return;
    shown_s_ = p.seconds;
    std::string best =
        std::isfinite(p.best_s) ? "best so far " + format_seconds(p.best_s) + " per step" : "none fits yet";
    if (std::isfinite(p.best_s) && p.bound_s > 0.0)
      best += fmt::format(" (at most {} more to gain)",
                          format_percent(std::max(0.0, 1.0 - p.bound_s / p.best_s)));
    const std::string line = fmt::format("searching{}{}: {} layouts, {}", what.empty() ? "" : " ", what,
                                         format_magnitude(double(p.layouts)), best);
    std::fputs(live_line(line, ", " + format_seconds(p.seconds), stderr).c_str(), stderr);
    std::fflush(stderr);
  }

 private:
  bool visible_;
  double shown_s_ = 0.0;
};

}  // namespace

Watch progress_line() {
  return [line = std::make_shared<ProgressLine>()](const std::string& what, const SearchProgress& progress) {
    line->show(what, progress);
    return !stop_requested();
  };
}

void check_prices(const std::vector<double>& prices, size_t clusters) {
  if (prices.size() <= 1 || prices.size() == clusters) return;
  refuse_input("--price",
               fmt::format("{} prices for {} cluster{}", prices.size(), clusters, clusters == 1 ? "" : "s"),
               "one for all, or one for each cluster in their order", "for example --price 2.5");
}

std::string with_value(std::string text, std::string_view name, const std::string& value) {
  for (size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

void print_notes(const std::vector<std::string>& notes) {
  static std::set<std::string> told;
  for (const auto& note : notes)
    if (told.insert(note).second) warn("mpt-plan: note: " + printable(note));
}

std::unique_ptr<Resolved> resolve_and_tell(const PlanRequest& request) {
  auto resolved = resolve(request);
  print_notes(resolved->notes);
  return resolved;
}

std::vector<PlanOrReason> compare_watched(const std::vector<PlanRequest>& requests) {
  for (const PlanRequest& request : requests) resolve_and_tell(request);  // errors before the work
  const Stoppable stoppable;
  return compare(requests, progress_line());
}

// The plan with a layout that needs clearly less memory at the end of its ranking, if there is one. It serves
// users who run out of memory.
Plan with_roomier(const Plan& plan, const SearchProblem* problem) {
  constexpr double kLongest = 10.0;  // seconds
  const double most = reports::kRoomierShare * double(reports::peak_bytes(plan));
  const bool known = any_of(plan.ranking, [&](const RankedLayout& r) {
    return double(r.peak_bytes) < most && r.layout.ranks() == plan.layout.ranks();
  });
  if (problem == nullptr || known || stop_requested()) return plan;
  SearchProblem less = *problem;
  const auto limit = std::max(int64_t{1}, int64_t(most) - 1);
  less.memory_limit_bytes = std::min(less.memory_limit_bytes, limit);
  for (DevicePool& pool : less.pools) pool.memory_limit_bytes = std::min(pool.memory_limit_bytes, limit);
  less.time_limit_s = less.time_limit_s > 0.0 ? std::min(kLongest, less.time_limit_s) : kLongest;
  const PlanOrReason found = plan_or_reason(std::move(less), plan.request);
  Plan more = plan;
  if (!found.plan) return more;
  more.ranking.push_back(found.plan->ranking.front());
  more.ranking.back().role = Role::alternative;
  return more;
}

void write_files(const OutputOptions& o, const Plan& plan, const CostOptions& cost,
                 const SearchProblem* problem) {
  if (!o.output.empty()) save_plan(plan, o.output);
  if (o.report.empty() && o.trace.empty()) return;
  const StepProgram program = program_of(plan);
  const Timeline timeline = simulate(plan, program);
  if (!o.report.empty()) {
    reports::Facts facts;
    if (!cost.tokens.empty()) {
      const std::string line = describe_cost(cost, plan);
      facts.emplace_back("Training", line.substr(0, line.size() - 1));
    }
    const auto* target = frameworks::export_target_of(plan.layout.execution->framework);
    write_file_atomically(
        o.report, reports::plan_report(as_observed(with_roomier(plan, problem)), program, timeline, facts,
                                       target != nullptr ? target->name : ""));
  }
  if (!o.trace.empty())
    write_file_atomically(o.trace, reports::trace_json(program, {{"predicted", timeline}}));
}

void print_answer(const OutputOptions& o, const std::string& text) {
  fmt::print("{}", text);
  if (o.json) return;
  for (const std::string& file : {o.output, o.report, o.trace})
    if (!file.empty()) fmt::print("wrote {}\n", file);
}

size_t files_of(const OutputOptions& o) {
  return size_t(!o.output.empty()) + size_t(!o.report.empty()) + size_t(!o.trace.empty());
}

std::string describe_cost(const CostOptions& o, const Plan& asked) {
  if (o.tokens.empty()) return "";
  const Plan plan = as_observed(asked);
  const TrainingCost cost = training_cost(plan, parse_count(o.tokens, "--tokens"), o.price, o.goodput);
  const Confidence& sure = plan.prediction.confidence;
  const double step_s = plan.prediction.step_time_s;
  std::string text = fmt::format("{} tokens take {} days, {} device-hours", o.tokens,
                                 with_range(cost.days, step_s, sure, format_days),
                                 with_range(cost.device_hours, step_s, sure, format_magnitude));
  if (o.price > 0.0)
    text += fmt::format(", {} at {} a device-hour", with_range(cost.price, step_s, sure, format_magnitude),
                        o.price);
  if (sure.least_s && sure.most_s) text += ", in brackets 8 of 10 cases";
  return text + ": " + describe_goodput(o) + "\n";
}

std::string idle_cost(const CostOptions& o, bool has_price) {
  if (!o.tokens.empty() || (!has_price && o.goodput == 1.0)) return "";
  return fmt::format("{} changes nothing without --tokens, the size of the training.",
                     has_price ? "--price" : "--goodput");
}

std::string describe_goodput(const CostOptions& o) {
  return o.goodput < 1.0
             ? fmt::format("failures, saving and evaluation take {} of the time (--goodput {})",
                           format_percent(1.0 - o.goodput), o.goodput)
             : "no failures, saving or evaluation are in it (--goodput 0.9 would leave a tenth for them)";
}

Stoppable::Stoppable() {
  if (catching_ || stop_requested()) return;
  catches_ = catching_ = true;
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  catch_signals();
}

Stoppable::~Stoppable() {
  if (!catches_) return;
  catching_ = false;
  if (stop_requested()) return;  // a second signal may follow, and the result must still be written
  for (size_t i = 0; i < std::size(kSignals); ++i) sigaction(kSignals[i], &before_[i], nullptr);
}

}  // namespace mpt::planner
