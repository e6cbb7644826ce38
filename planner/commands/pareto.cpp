// SPDX-License-Identifier: Apache-2.0

// mpt-plan --pareto: what time, memory and devices can be had against each other.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/error.h"
#include "base/interruption.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/terminal.h"
#include "planner/commands/commands.h"
#include "planner/explain/utilisation.h"
#include "planner/stoppable.h"
#include "reports/table.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

constexpr size_t kMostPerCount = 12;
constexpr double kLessMemory = 0.8;  // a layout that saves less than a fifth is no choice of its own

// Whether nothing speaks for `other` beside `one`.
bool dominates(const RankedLayout& one, const RankedLayout& other) {
  const auto key = [](const RankedLayout& r) {
    return std::array{double(r.layout.ranks()), r.step_time_s, double(r.peak_bytes)};
  };
  const auto a = key(one), b = key(other);
  return a != b && a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

// All devices, a half, a quarter, ...: as long as they divide.
std::vector<int64_t> device_counts(const SearchProblem& problem) {
  std::vector<int64_t> counts{problem.ranks};
  while (!problem.cluster.mixed() && counts.back() % 2 == 0) counts.push_back(counts.back() / 2);
  return counts;
}

struct Front {
  std::optional<Plan> fastest;
  std::vector<RankedLayout> points;
  bool complete = true;
};

// With ever less memory: the fastest layout of each limit is the fastest of all that need no more.
void add_points(SearchProblem problem, size_t keep, Front& front, double& seconds_left) {
  for (size_t n = 0; n < kMostPerCount && !stop_requested(); ++n) {
    if (seconds_left < 0.0) front.complete = false;
    if (!front.complete) return;
    problem.time_limit_s = seconds_left;
    problem.near_misses = !front.fastest;
    const std::string of =
        fmt::format("{} GPUs of {} each", problem.ranks, format_bytes(double(problem.memory_limit_bytes)));
    const auto search = watched_search(problem, front.fastest ? 1 : keep, of);
    if (seconds_left > 0.0) seconds_left = std::max(1e-3, seconds_left - search->result.certificate.seconds);
    front.complete = front.complete && search->result.certificate.optimal;
    if (search->result.best.empty()) return;
    Plan plan = make_plan_of(*search);
    front.points.push_back(plan.ranking.front());
    problem.memory_limit_bytes = int64_t(kLessMemory * double(plan.ranking.front().peak_bytes));
    for (DevicePool& pool : problem.pools)
      pool.memory_limit_bytes = std::min(pool.memory_limit_bytes, problem.memory_limit_bytes);
    if (!front.fastest || plan.prediction.step_time_s < front.fastest->prediction.step_time_s)
      front.fastest = std::move(plan);
  }
}

Front pareto_front(const PlanOptions& o, const SearchProblem& problem) {
  const Stoppable stoppable;
  Front front;
  double seconds_left = problem.time_limit_s;
  for (const int64_t devices : device_counts(problem)) {
    SearchProblem part = problem;
    part.ranks = devices;
    std::unique_ptr<PreparedSearch> fewer;  // prices change with the number of nodes
    if (devices != problem.ranks && o.profile.empty()) {
      PlanOptions options = o;
      options.ranks = devices;
      options.memory = std::to_string(problem.memory_limit_bytes) + "B";
      fewer = prepare(options);
      part.cost = fewer->problem.cost;
    }
    add_points(std::move(part), size_t(o.top), front, seconds_left);
  }
  front.complete = front.complete && !stop_requested();
  std::vector<RankedLayout> kept;
  for (const RankedLayout& point : front.points) {
    const bool dominated = std::any_of(front.points.begin(), front.points.end(),
                                       [&](const RankedLayout& other) { return dominates(other, point); });
    if (!dominated) kept.push_back(point);
  }
  front.points = std::move(kept);
  return front;
}

std::string table_of(const Front& front, const CostOptions& cost) {
  const std::string one = reports::device_word(front.fastest->cluster);
  std::vector<reports::Column> columns{{one + "s"}, {"step time"}, {"memory"}, {"tokens/s"}, {"per " + one}};
  if (!cost.tokens.empty()) columns.push_back({"days for " + cost.tokens});
  if (!cost.tokens.empty() && cost.price > 0.0) columns.push_back({"price"});
  columns.push_back({"layout", reports::Align::left});
  reports::Table table(std::move(columns));
  for (const RankedLayout& r : front.points) {
    std::vector<std::string> row{std::to_string(r.layout.ranks()), format_seconds(r.step_time_s),
                                 format_bytes(double(r.peak_bytes)), format_count(int64_t(r.tokens_per_s)),
                                 format_count(int64_t(r.tokens_per_s / double(r.layout.ranks())))};
    if (!cost.tokens.empty()) {
      const TrainingCost whole = training_cost(
          r.layout.ranks(), r.tokens_per_s, parse_count(cost.tokens, "--tokens"), cost.price, cost.goodput);
      row.push_back(fmt::format("{:.1f}", whole.days));
      if (cost.price > 0.0) row.push_back(format_magnitude(whole.price));
    }
    row.push_back(layout_name(r.layout));
    table.add_row(std::move(row));
  }
  return table.text(kScreenColumns);
}

// As many rows as a screen holds; with -v all of them.
std::string shown_table(Front& front, const PlanOptions& o) {
  constexpr ptrdiff_t kOtherLines = 11;
  const auto lines = [](const std::string& text) { return std::count(text.begin(), text.end(), '\n'); };
  std::string table = table_of(front, o.cost);
  const size_t all = front.points.size();
  const std::vector<RankedLayout> kept = front.points;
  std::vector<RankedLayout>& rows = front.points;
  while (!o.out.verbose && lines(table) > ptrdiff_t(kScreenLines) - kOtherLines) {
    // The pair that is nearest in time loses its first one, which needs more memory; the fastest stays.
    size_t first = rows.size();
    double least = std::numeric_limits<double>::infinity();
    for (size_t n = 1; n + 1 < rows.size(); ++n) {
      const auto ranks = [&](size_t at) { return rows[at].layout.ranks(); };
      if (ranks(n - 1) != ranks(n) || ranks(n) != ranks(n + 1)) continue;
      const double apart = rows[n + 1].step_time_s / rows[n].step_time_s;
      if (apart >= least) continue;
      least = apart;
      first = n;
    }
    if (first == rows.size()) break;
    rows.erase(rows.begin() + ptrdiff_t(first));
    table = table_of(front, o.cost);
  }
  if (rows.size() < all) table += fmt::format("  {} of {} rows; -v prints all\n", rows.size(), all);
  rows = kept;
  return table;
}

}  // namespace

void plan_front(const PlanOptions& o) {
  const auto prepared = prepare(o);
  const SearchProblem& problem = prepared->problem;
  Front front = pareto_front(o, problem);
  if (front.points.empty()) {
    search_plan(o, *prepared, 1);  // says why there is none
    return;
  }
  std::string text;
  if (o.out.json) {
    text = Json{{"complete", front.complete}, {"front", to_json(front.points)}}.dump(1) + "\n";
  } else {
    text = describe_task(*front.fastest, Palette::of(stdout)) +
           "\nNothing is better in time, memory and number of GPUs than one of these:\n\n" +
           shown_table(front, o) +
           wrapped(
               "Each row is the fastest layout for that many GPUs and that memory; memory falls by a fifth "
               "or more per row. Short forms: docs/notation.md.");
    if (!front.complete) text += "Stopped before the end: there may be more rows, and faster ones.\n";
  }
  front.fastest->front = std::move(front.points);
  write_and_print(o.out, *front.fastest, text, o.cost, &problem);
}

}  // namespace mpt::planner
