// SPDX-License-Identifier: Apache-2.0
#include "planner/search/arrangement.h"

#include "base/clock.h"
#include "base/quantity.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {

namespace {

// Every order of every selection of the groups, those with the most devices first; equal groups that change
// places are one order.
std::vector<std::vector<DeviceGroup>> arrangements(const std::vector<DeviceGroup>& groups) {
  std::vector<std::vector<DeviceGroup>> all;
  for (uint32_t chosen = 1; chosen < (1u << groups.size()); ++chosen) {
    std::vector<size_t> order;
    for (size_t g = 0; g < groups.size(); ++g)
      if (chosen >> g & 1) order.push_back(g);
    do {
      auto arranged = mapped<DeviceGroup>(order, [&](size_t g) { return groups[g]; });
      if (!contains(all, arranged)) all.push_back(std::move(arranged));
    } while (std::next_permutation(order.begin(), order.end()));
  }
  sort_by(all, [](const auto& one) { return -sum_of<int64_t>(one, &DeviceGroup::devices); });
  return all;
}

std::string joined_names(const std::vector<DeviceGroup>& groups, std::string_view between) {
  return joined(mapped<std::string>(groups, &DeviceGroup::name), between);
}

std::string told(const std::string& name, const SearchResult& result) {
  if (!result.best.empty())
    return fmt::format("{}: {} per step with {}", name,
                       format_seconds(result.best.front().evaluation.step_time_s),
                       layout_name(result.best.front().estimate.layout));
  if (!result.certificate.optimal) return name + ": not searched to the end, no layout found";
  return name + (result.over_memory.empty() ? ": no layout divides" : ": no layout fits");
}

double time_s(const ArrangedSearch& a) {
  return a.result.best.empty() ? std::numeric_limits<double>::infinity()
                               : a.result.best.front().evaluation.step_time_s;
}

// "b+a@link" of "a+b@link": who names the cluster so gets the ranks in the plan's order.
std::string arranged_name(const ClusterSpec& cluster, const std::vector<DeviceGroup>& groups) {
  const std::string given = joined_names(cluster.groups, "+");
  if (!cluster.name.starts_with(given)) return cluster.name;
  return joined_names(groups, "+") + cluster.name.substr(given.size());
}

// Limits of ranks on some of the problem's groups.
std::vector<int64_t> limits_on(const SearchProblem& problem, const std::vector<DeviceGroup>& groups) {
  std::vector<int64_t> limits;
  for (const DeviceGroup& group : groups) {
    const std::vector<DeviceGroup>& all = problem.cluster.groups;
    const size_t g = size_t(std::find(all.begin(), all.end(), group) - all.begin());
    limits.push_back(problem.pools[g].memory_limit_bytes);
  }
  return limits;
}

// The problem on some of the groups, in this order.
std::unique_ptr<ArrangedSearch> arranged(const SearchProblem& problem,
                                         const std::vector<DeviceGroup>& groups) {
  auto a = std::make_unique<ArrangedSearch>();
  a->problem = problem;
  a->problem.cluster = with_groups(problem.cluster, groups);
  if (a->problem.cluster.mixed()) a->problem.cluster.name = arranged_name(problem.cluster, groups);
  a->problem.ranks = a->problem.cluster.devices;
  const std::vector<int64_t> limits = limits_on(problem, groups);
  a->pools = std::make_unique<Pools>(a->problem.cluster, problem.execution, limits);
  a->pools->set(a->problem);
  if (!a->problem.cluster.mixed()) {
    a->cost = make_device_cost(a->problem.cluster, problem.execution);
    a->problem.cost = a->cost.get();
    a->problem.memory_limit_bytes = limits.front();
  }
  return a;
}

// "dgx-a100:2 is left idle: with all GPUs a step takes 5.1 s, 8% more".
std::string idle_groups(const SearchProblem& problem, const std::vector<DeviceGroup>& used, double best_s,
                        double with_all_s, bool optimal) {
  std::vector<DeviceGroup> idle = problem.cluster.groups;
  for (const DeviceGroup& group : used) idle.erase(std::find(idle.begin(), idle.end(), group));
  if (idle.empty() || !std::isfinite(best_s)) return "";
  const std::string text =
      fmt::format("{} {} left idle", joined_names(idle, " and "), idle.size() == 1 ? "is" : "are");
  if (!std::isfinite(with_all_s)) return text + ": with all GPUs no layout fits or divides.";
  return fmt::format("{}: with all GPUs the fastest step {}takes {}, {} more.", text, optimal ? "" : "found ",
                     format_seconds(with_all_s), format_percent(with_all_s / best_s - 1.0));
}

}  // namespace

Pools::Pools(const ClusterSpec& cluster, const Execution& execution, const std::vector<int64_t>& limits) {
  for (size_t g = 0; g < cluster.groups.size(); ++g) {
    views_.push_back(std::make_unique<ClusterSpec>(group_view(cluster, g)));
    sources_.push_back(make_device_cost(*views_.back(), execution));
    pools_.push_back({sources_.back().get(), limits[g]});
  }
}

void Pools::set(SearchProblem& problem) const {
  problem.pools = pools_;
  if (pools_.empty()) return;
  problem.cost = pools_.front().cost;
  problem.memory_limit_bytes = 0;
  for (const DevicePool& pool : pools_)
    problem.memory_limit_bytes = std::max(problem.memory_limit_bytes, pool.memory_limit_bytes);
}

SearchProblem without_margin(SearchProblem problem) {
  const ClusterSpec& cluster = problem.cluster;
  if (problem.pools.empty()) {
    problem.memory_limit_bytes = tensor_bytes(cluster.device, problem.execution);
    return problem;
  }
  problem.memory_limit_bytes = 0;
  for (size_t g = 0; g < problem.pools.size(); ++g) {
    int64_t& limit = problem.pools[g].memory_limit_bytes;
    limit = tensor_bytes(cluster.groups[g].device, problem.execution);
    problem.memory_limit_bytes = std::max(problem.memory_limit_bytes, limit);
  }
  return problem;
}

SearchProblem with_limits_between(const SearchProblem& least, const SearchProblem& most, double share) {
  const auto between = [share](int64_t low, int64_t high) {
    return low + int64_t(double(high - low) * share);
  };
  SearchProblem problem = most;
  problem.memory_limit_bytes = between(least.memory_limit_bytes, most.memory_limit_bytes);
  for (size_t g = 0; g < problem.pools.size(); ++g)
    problem.pools[g].memory_limit_bytes =
        between(least.pools[g].memory_limit_bytes, most.pools[g].memory_limit_bytes);
  return problem;
}

std::unique_ptr<ArrangedSearch> search_arrangements(const SearchProblem& problem, const ResultLimits& wanted,
                                                    const OnProgress& on_progress, const Beside& beside) {
  if (!problem.cluster.mixed()) {
    auto only = std::make_unique<ArrangedSearch>();
    only->problem = problem;
    only->result = search(problem, wanted, on_progress, beside);
    return only;
  }
  const double start_s = now_s();
  SearchCertificate sum;
  sum.optimal = true;
  double bound_s = std::numeric_limits<double>::infinity(), with_all_s = bound_s;
  std::vector<DeviceGroup> used;
  std::unique_ptr<ArrangedSearch> best;
  std::vector<std::string> notes;
  for (const std::vector<DeviceGroup>& groups : arrangements(problem.cluster.groups)) {
    auto next = arranged(problem, groups);
    next->problem = with_time_left(std::move(next->problem), problem.time_limit_s, start_s);
    const SearchProblem roomier = without_margin(next->problem);
    next->result =
        search(next->problem, wanted, on_progress,
               {beside.roomier != nullptr ? &roomier : nullptr, nullptr, 1.0, beside.simplest_kinds});
    add(sum, next->result.certificate);
    bound_s = std::min(bound_s, next->result.bound_s);
    notes.push_back(told(joined_names(groups, ", then ") + (groups.size() == 1 ? " alone" : ""), next->result));
    if (next->problem.ranks == problem.cluster.devices) with_all_s = std::min(with_all_s, time_s(*next));
    if (best && time_s(*next) >= time_s(*best)) continue;
    best = std::move(next);
    used = groups;
  }
  best->notes = std::move(notes);
  best->left_out = idle_groups(problem, used, time_s(*best), with_all_s, sum.optimal);
  sum.fastest_s = best->result.certificate.fastest_s;
  best->result.certificate = sum;
  if ((!sum.optimal || problem.gap > 0.0) && !best->result.best.empty())
    best->result.certificate.gap = std::max(0.0, 1.0 - bound_s / time_s(*best));
  return best;
}

}  // namespace mpt::planner
