// SPDX-License-Identifier: Apache-2.0

// Remedies if no layout fits into memory: other options, or a larger cluster. Each remedy is tried by a
// search before it is named.

#include <cmath>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "core/bound_words.h"
#include "frameworks/export_targets.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/answer/doctor.h"
#include "planner/answer/recommend.h"
#include "planner/explain/nothing_divides.h"
#include "planner/memory/memory_model.h"
#include "profiler/hardware/nodes.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

constexpr double kLongest = 20.0;  // seconds for all trials

// Trials of remedies, with a time limit.
class Trials {
 public:
  Trials(const Resolved& resolved, const Watch& watch) : resolved_(resolved), watch_(watch) {}

  bool over() const { return now_s() > start_s_ + kLongest; }
  const PlanRequest& request() const { return resolved_.request; }

  // The fastest layout that fits, within the remaining time.
  std::optional<RankedLayout> fitting(SearchProblem problem, const std::string& what) const {
    if (over() || stop_requested()) return std::nullopt;
    problem.near_misses = false;
    const auto search =
        recommended_search(with_time_left(std::move(problem), kLongest, start_s_), 1, watch_, what);
    if (search->result.best.empty()) return std::nullopt;
    return plan_of(*search, request()).ranking.front();
  }

 private:
  const Resolved& resolved_;
  const Watch& watch_;
  const double start_s_ = now_s();
};

std::string told(const RankedLayout& r) {
  return fmt::format("{} fits, with {}", layout_name(r.layout), format_bytes(double(r.peak_bytes)));
}

std::string without_bounds(const Trials& trials, const SearchProblem& problem) {
  const std::vector<BoundWords> words = asked_bounds(problem);
  if (words.empty()) return "";
  const auto found = trials.fitting(bounded(problem, {}), "without limits");
  return found ? fmt::format("leave out {}: {}", options_of(words), told(*found)) : "";
}

// A higher memory limit, up to that of one GPU.
std::string with_more_memory(const Trials& trials, const SearchResult& result, const SearchProblem& problem) {
  if (trials.request().memory.empty() || problem.cluster.mixed() || result.over_memory.empty()) return "";
  const double tenths = std::ceil(10.0 * result.over_memory.front().nearest.needed / double(kGiB));
  const auto needed = int64_t(tenths / 10.0 * double(kGiB));
  if (needed > tensor_bytes(problem.cluster.device, problem.execution)) return "";
  SearchProblem larger = problem;
  larger.memory_limit_bytes = needed;
  const auto found = trials.fitting(std::move(larger), "with more memory");
  return found ? fmt::format("--memory {:.1f}GiB: {}", tenths / 10.0, told(*found)) : "";
}

// The least number of nodes that holds the model: doubled until it fits, then halved in between.
std::string with_more_nodes(const Trials& trials, const SearchProblem& problem) {
  constexpr int64_t kMostNodes = 1 << 14;
  const ClusterSpec& cluster = problem.cluster;
  const std::string& name = trials.request().cluster.name;
  const std::string kind = name.substr(0, name.rfind(':'));
  const int64_t count = cluster.devices / std::max<int64_t>(1, cluster.devices_per_node);
  if (name != fmt::format("{}:{}", kind, count) || profiler::node_named(kind) == nullptr ||
      trials.request().gpus > 0 || !trials.request().profile.empty())
    return "";
  const auto try_nodes = [&](int64_t nodes) {
    PlanRequest other = trials.request();
    other.cluster = {fmt::format("{}:{}", kind, nodes), {}};
    if (!trials.request().memory.empty()) other.memory = fmt::format("{}B", problem.memory_limit_bytes);
    return trials.fitting(resolve(other)->problem, other.cluster.name);
  };
  int64_t too_few = count, enough = 0;
  std::optional<RankedLayout> found;
  for (int64_t nodes = 2 * count; nodes <= kMostNodes && !found; nodes *= 2) {
    found = try_nodes(nodes);
    if (trials.over() && !found) return "";
    (found ? enough : too_few) = nodes;
  }
  if (!found) return "";
  while (enough - too_few > 1 && !trials.over()) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    const auto fewer = try_nodes(middle);
    if (fewer) found = fewer;
    (fewer ? enough : too_few) = middle;
  }
  return fmt::format("{} cluster of this kind that holds it is {}:{}: {}",
                     enough - too_few > 1 ? "a" : "the smallest", kind, enough, told(*found));
}

// Another framework may refuse options of the request; the result is then null.
std::unique_ptr<Resolved> resolved_if_possible(const PlanRequest& request) {
  try {
    return resolve(request);
  } catch (const UserError&) {
    return nullptr;
  }
}

// A switch of the framework that is not part of a layout, such as a loss that keeps no logits.
std::string with_switch(const Trials& trials, const SearchProblem& problem) {
  for (const Json& row : memory_switches(problem)) {
    if (!row.contains("request") || trials.over()) continue;
    const auto resolved = resolved_if_possible(request_with(row, trials.request()));
    const auto found = resolved ? trials.fitting(resolved->problem, row["option"]) : std::nullopt;
    if (found)
      return fmt::format("{} ({}): {}", row["option"].get<std::string>(), row["written"].get<std::string>(),
                         told(*found));
  }
  return "";
}

// Another framework that MPT exports to and in which the model fits on these GPUs.
std::string with_other_framework(const Trials& trials, const SearchProblem& problem) {
  if (!trials.request().profile.empty() || problem.cluster.device.kind == DeviceKind::cpu) return "";
  for (const frameworks::ExportTarget& target : frameworks::export_targets()) {
    const frameworks::Framework* framework = frameworks::find_framework(target.name);
    if (framework == nullptr || framework->name == problem.execution.framework || trials.over()) continue;
    if (frameworks::supports_model(*framework, problem.model, problem.precision)) continue;
    PlanRequest other = trials.request();
    other.framework = framework->name;
    const std::unique_ptr<Resolved> resolved = resolved_if_possible(other);
    if (!resolved) continue;
    const auto found = trials.fitting(resolved->problem, framework->name);
    if (found) return fmt::format("--framework {}: {}", framework->name, told(*found));
  }
  return "";
}

}  // namespace

std::string remedy_of_nothing_fits(const Resolved& resolved, const SearchResult& result,
                                   const SearchProblem& problem, const Watch& watch) {
  if (!result.certificate.optimal) return "";
  const Trials trials(resolved, watch);
  if (result.over_memory.empty()) {
    SearchProblem free = problem;
    free.framework.reset();
    return problem.framework && has_layouts(free) ? with_other_framework(trials, problem) : "";
  }
  std::string remedy = without_bounds(trials, problem);
  if (remedy.empty()) remedy = with_more_memory(trials, result, problem);
  if (!remedy.empty()) return remedy;
  std::vector<std::string> ways{with_switch(trials, problem), with_more_nodes(trials, problem),
                                with_other_framework(trials, problem)};
  std::erase(ways, "");
  return joined(ways, "\n    ");
}

}  // namespace mpt::planner
