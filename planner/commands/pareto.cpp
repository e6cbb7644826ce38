// SPDX-License-Identifier: Apache-2.0

// mpt-plan --pareto: what time, memory and devices can be had against each other.

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "core/interruption.h"
#include "core/json.h"
#include "core/quantity.h"
#include "planner/commands/commands.h"
#include "reports/table.h"

namespace mpt::planner {
namespace {

constexpr size_t kMostPerCount = 12;
constexpr double kLessMemory = 0.9;  // a layout that saves less than a tenth is no choice of its own

struct Point {
  int64_t devices = 0;
  RankedLayout ranked;

  bool dominates(const Point& other) const {
    const bool no_worse = devices <= other.devices && ranked.step_time_s <= other.ranked.step_time_s &&
                          ranked.peak_bytes <= other.ranked.peak_bytes;
    return no_worse && (devices < other.devices || ranked.step_time_s < other.ranked.step_time_s ||
                        ranked.peak_bytes < other.ranked.peak_bytes);
  }

  template <class V>
  static void describe(V& v) {
    using T = Point;
    v.field("devices", &T::devices, "devices used", between(1, 1e7));
    v.field("ranked", &T::ranked, "layout and prediction");
  }
};

// All devices, a half, a quarter, ...: as long as they divide.
std::vector<int64_t> device_counts(const SearchProblem& problem) {
  std::vector<int64_t> counts{problem.ranks};
  while (!problem.cluster.mixed() && counts.back() % 2 == 0) counts.push_back(counts.back() / 2);
  return counts;
}

struct Front {
  std::vector<Point> points;
  bool complete = true;
};

// With ever less memory: the fastest layout of each limit is the fastest of all that need no more.
void add_points(SearchProblem problem, Front& front, double& seconds_left) {
  for (size_t n = 0; n < kMostPerCount && !stop_requested(); ++n) {
    if (seconds_left < 0.0) front.complete = false;
    if (!front.complete) return;
    problem.time_limit_s = seconds_left;
    const auto search = watched_search(problem, 1);
    if (seconds_left > 0.0) seconds_left = std::max(1e-3, seconds_left - search->result.certificate.seconds);
    front.complete = front.complete && search->result.certificate.optimal;
    if (search->result.best.empty()) return;
    const Plan plan = make_plan_of(*search);
    front.points.push_back({plan.layout.ranks(), plan.ranking.front()});
    problem.memory_limit_bytes = int64_t(kLessMemory * double(plan.ranking.front().peak_bytes));
    for (DevicePool& pool : problem.pools)
      pool.memory_limit_bytes = std::min(pool.memory_limit_bytes, problem.memory_limit_bytes);
  }
}

Front pareto_front(const SearchProblem& problem) {
  Front front;
  double seconds_left = problem.time_limit_s;
  for (const int64_t devices : device_counts(problem)) {
    SearchProblem part = problem;
    part.ranks = devices;
    add_points(std::move(part), front, seconds_left);
  }
  front.complete = front.complete && !stop_requested();
  std::vector<Point> kept;
  for (const Point& point : front.points) {
    const bool dominated = std::any_of(front.points.begin(), front.points.end(),
                                       [&](const Point& other) { return other.dominates(point); });
    if (!dominated) kept.push_back(point);
  }
  front.points = std::move(kept);
  return front;
}

std::string table_of(const Front& front) {
  reports::Table table({{"devices"},
                        {"step time"},
                        {"memory"},
                        {"tokens/s"},
                        {"per device"},
                        {"layout", reports::Align::left}});
  for (const auto& [devices, r] : front.points) {
    table.add_row({std::to_string(devices), format_seconds(r.step_time_s), format_bytes(double(r.peak_bytes)),
                   format_count(int64_t(r.tokens_per_s)),
                   format_count(int64_t(r.tokens_per_s / double(devices))), layout_name(r.layout)});
  }
  return table.text();
}

}  // namespace

void print_pareto(const PlanOptions& o) {
  const auto prepared = prepare(o);
  const SearchProblem& problem = prepared->problem;
  const Front front = pareto_front(problem);
  if (front.points.empty()) {
    search_plan(*prepared, 1);  // says why there is none
    return;
  }
  if (o.out.json) {
    fmt::print("{}\n", Json{{"complete", front.complete}, {"pareto", to_json(front.points)}}.dump(1));
    return;
  }
  fmt::print(
      "{} on {}, {} sequences of {} tokens per step: nothing is better in time, memory and devices\n\n{}",
      problem.model.name, problem.cluster.name, problem.workload.global_batch, problem.workload.sequence,
      table_of(front));
  fmt::print("\nEach is the fastest of its devices that needs no more memory; memory in steps of a tenth.\n");
  if (!front.complete) fmt::print("Stopped before the end: there may be more, and better ones.\n");
}

}  // namespace mpt::planner
