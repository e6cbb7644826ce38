// SPDX-License-Identifier: Apache-2.0

// front(): the trade-off between time, memory and number of GPUs.

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/clock.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "planner/answer/recommend.h"
#include "planner/explain/plan_notes.h"

namespace mpt::planner {
namespace {

constexpr size_t kMostPerCount = 12;
constexpr double kLessMemory = 0.8;  // a saving below a fifth is not listed

// Whether `one` is better than `other` in some respect and worse in none.
bool dominates(const RankedLayout& one, const RankedLayout& other) {
  const auto key = [](const RankedLayout& r) {
    return std::array{double(r.layout.ranks()), r.step_time_s, double(r.peak_bytes)};
  };
  const auto a = key(one), b = key(other);
  return a != b && a[0] <= b[0] && a[1] <= b[1] && a[2] <= b[2];
}

// All devices, a half, a quarter, ..., while the count is even.
std::vector<int64_t> device_counts(const SearchProblem& problem) {
  std::vector<int64_t> counts{problem.ranks};
  while (!problem.cluster.mixed() && counts.back() % 2 == 0) counts.push_back(counts.back() / 2);
  return counts;
}

// Searches with less and less memory. The best layout of a limit is the best of all that need no more.
class FrontSearch {
 public:
  FrontSearch(const Resolved& resolved, const Watch& watch) : resolved_(resolved), watch_(watch) {}

  Front run() {
    for (const int64_t devices : device_counts(resolved_.problem)) {
      SearchProblem part = resolved_.problem;
      part.ranks = devices;
      std::unique_ptr<Resolved> fewer;  // prices change with the number of nodes
      if (devices != resolved_.problem.ranks && resolved_.request.profile.empty()) {
        PlanRequest request = resolved_.request;
        request.gpus = devices;
        request.cluster.value = resolved_.problem.cluster;
        request.memory = std::to_string(resolved_.problem.memory_limit_bytes) + "B";
        fewer = resolve(request);
        part.cost = fewer->problem.cost;
      }
      add_points(std::move(part));
    }
    front_.complete = front_.complete && !stop_requested();
    drop_dominated();
    return std::move(front_);
  }

 private:
  void add_points(SearchProblem problem) {
    for (size_t n = 0; n < kMostPerCount && !stop_requested(); ++n) {
      if (!front_.complete) return;
      problem = with_time_left(std::move(problem), resolved_.problem.time_limit_s, start_s_);
      problem.near_misses = !front_.fastest;
      const std::string what =
          fmt::format("{} GPUs of {} each", problem.ranks, format_bytes(double(problem.memory_limit_bytes)));
      const size_t keep = front_.fastest ? 1 : size_t(resolved_.request.top);
      const auto search = recommended_search(problem, keep, watch_, what);
      front_.complete = front_.complete && search->result.certificate.optimal;
      if (search->result.best.empty()) return;
      keep_point(plan_of(*search, resolved_.request), problem);
    }
  }

  void keep_point(Plan plan, SearchProblem& problem) {
    front_.points.push_back(plan.ranking.front());
    front_.points.back().role = Role::alternative;
    problem.memory_limit_bytes = int64_t(kLessMemory * double(plan.ranking.front().peak_bytes));
    for (DevicePool& pool : problem.pools)
      pool.memory_limit_bytes = std::min(pool.memory_limit_bytes, problem.memory_limit_bytes);
    if (!front_.fastest || plan.prediction.step_time_s < front_.fastest->prediction.step_time_s)
      front_.fastest = std::move(plan);
  }

  void drop_dominated() {
    const std::vector<RankedLayout> all = front_.points;
    std::erase_if(front_.points, [&](const RankedLayout& point) {
      return any_of(all, [&](const RankedLayout& other) { return dominates(other, point); });
    });
    if (front_.fastest) front_.fastest->front = front_.points;
  }

  const Resolved& resolved_;
  const Watch& watch_;
  const double start_s_ = now_s();
  Front front_;
};

}  // namespace

Front front(const Resolved& resolved, const Watch& watch) {
  check_searches(resolved.request);
  check_fewer_nodes(resolved);
  Front found = FrontSearch(resolved, watch).run();
  if (found.fastest) found.fastest->notes = with_kernel_note(resolved.notes, *found.fastest);
  return found;
}

}  // namespace mpt::planner
