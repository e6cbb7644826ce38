// SPDX-License-Identifier: Apache-2.0

// front(): the trade-off between time, memory and number of GPUs.

#include "base/clock.h"
#include "base/interruption.h"
#include "base/ranges.h"
#include "core/ties.h"
#include "planner/answer/recommend.h"
#include "planner/explain/explain.h"
#include "planner/explain/plan_notes.h"

namespace mpt::planner {
namespace {

constexpr double kLessMemory = 0.8;    // each limit over the one above
constexpr double kLeastMemory = 0.08;  // of the memory: less is not asked for

// Whether `one` is better than `other` in some respect and worse in none.
bool dominates(const RankedLayout& one, const RankedLayout& other) {
  const int64_t ranks = one.layout.ranks(), others = other.layout.ranks();
  return ranks <= others && one.step_time_s <= other.step_time_s && one.peak_bytes <= other.peak_bytes &&
         (ranks < others || one.step_time_s < other.step_time_s || one.peak_bytes < other.peak_bytes);
}

// All devices, a half, a quarter, ..., while the count is even.
std::vector<int64_t> device_counts(const SearchProblem& problem) {
  std::vector<int64_t> counts{problem.ranks};
  while (!problem.cluster.mixed() && counts.back() % 2 == 0) counts.push_back(counts.back() / 2);
  return counts;
}

// Searches each number of devices once, for all limits of memory together.
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
      if (!front_.fastest) add_fastest(part);
      add_points(part);
      if (!front_.complete) break;
    }
    drop_dominated();
    return std::move(front_);
  }

 private:
  SearchProblem with_limit(SearchProblem problem, double share) const {
    problem = with_time_left(std::move(problem), resolved_.problem.time_limit_s, start_s_);
    problem.near_misses = !front_.fastest;
    problem.memory_limit_bytes = int64_t(share * double(problem.memory_limit_bytes));
    for (DevicePool& pool : problem.pools)
      pool.memory_limit_bytes = std::min(pool.memory_limit_bytes, problem.memory_limit_bytes);
    return problem;
  }

  void add_fastest(const SearchProblem& problem, double share = 1.0) {
    const SearchProblem part = with_limit(problem, share);
    const auto search = recommended_search(part, front_.fastest ? 1 : size_t(resolved_.request.top), watch_,
                                           fmt::format("{} GPUs", part.ranks));
    front_.complete = front_.complete && search->result.certificate.optimal;
    if (search->result.best.empty()) return;
    Plan plan = plan_of(*search, resolved_.request);
    add_point(plan.ranking.front());
    if (!front_.fastest || plan.prediction.step_time_s < front_.fastest->prediction.step_time_s)
      front_.fastest = std::move(plan);
  }

  void add_points(const SearchProblem& problem) {
    if (problem.cluster.mixed()) {
      for (double share = kLessMemory; share > kLeastMemory && front_.complete; share *= kLessMemory)
        add_fastest(problem, share);
      return;
    }
    std::vector<int64_t> limits;
    for (double share = 1.0; share > kLeastMemory; share *= kLessMemory)
      limits.insert(limits.begin(), with_limit(problem, share).memory_limit_bytes);
    const SearchProblem part = with_limit(problem, 1.0);
    const auto found = search_limits(part, limits, [&](const SearchProgress& p) {
      return (!watch_ || watch_(fmt::format("{} GPUs", part.ranks), p)) && !stop_requested();
    });
    front_.complete = front_.complete && !found.empty();
    for (auto candidate = found.rbegin(); candidate != found.rend() && *candidate; ++candidate)
      add_point(ranked(**candidate, part, published_evidence()));
  }

  // Points of one number of devices come in the order of their limits, the largest first. One that is as fast
  // as the last says nothing new, unless it saves as much as a limit does.
  void add_point(RankedLayout point) {
    const RankedLayout* last = front_.points.empty() ? nullptr : &front_.points.back();
    if (last != nullptr && last->layout.ranks() == point.layout.ranks() &&
        point.step_time_s <= (1.0 + kEqualTimes) * last->step_time_s &&
        double(point.peak_bytes) > kLessMemory * double(last->peak_bytes))
      return;
    front_.points.push_back(std::move(point));
    front_.points.back().role = Role::alternative;
  }

  void drop_dominated() {
    const std::vector<RankedLayout> all = front_.points;
    std::erase_if(front_.points, [&](const RankedLayout& point) {
      return point.layout != all.front().layout &&  // the plan's, which may be the simplest of equals
             any_of(all, [&](const RankedLayout& other) { return dominates(other, point); });
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
