// SPDX-License-Identifier: Apache-2.0

// What helps where no layout fits into memory: other options, or a larger cluster. Each remedy was searched
// with before it is named.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>

#include "base/clock.h"
#include "base/error.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "core/bound_words.h"
#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "planner/answer/recommend.h"
#include "planner/explain/nothing_divides.h"
#include "planner/memory/memory_model.h"
#include "planner/search/arrangement.h"
#include "profiler/hardware/nodes.h"
#include "reports/utilisation.h"

namespace mpt::planner {
namespace {

constexpr double kLongest = 20.0;  // seconds for all that is tried

// What is tried, and until when.
class Trials {
 public:
  Trials(const Resolved& resolved, const Watch& watch)
      : resolved_(resolved), watch_(watch), end_s_(now_s() + kLongest) {}

  bool over() const { return now_s() > end_s_; }
  const PlanRequest& request() const { return resolved_.request; }

  // The fastest layout that fits, in what is left of the time.
  std::optional<RankedLayout> fitting(SearchProblem problem, const std::string& what) const {
    const double left_s = end_s_ - now_s();
    if (left_s <= 0.0 || stop_requested()) return std::nullopt;
    problem.near_misses = false;
    problem.time_limit_s = problem.time_limit_s > 0.0 ? std::min(problem.time_limit_s, left_s) : left_s;
    const auto search = recommended_search(problem, 1, watch_, what);
    if (search->result.best.empty()) return std::nullopt;
    return plan_of(*search, request()).ranking.front();
  }

 private:
  const Resolved& resolved_;
  const Watch& watch_;
  double end_s_;
};

std::string told(const RankedLayout& r) {
  return fmt::format("{} fits, with {}", layout_name(r.layout), format_bytes(double(r.peak_bytes)));
}

std::string without_bounds(const Trials& trials, const SearchProblem& problem) {
  const std::vector<std::string> options = bounded_options(problem.bounds);
  if (options.empty()) return "";
  SearchProblem free = problem;
  free.bounds = {};
  const auto found = trials.fitting(std::move(free), "without limits");
  return found ? fmt::format("leave out {}: {}", fmt::join(options, ", "), told(*found)) : "";
}

// As far as one GPU goes.
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

struct Nodes {
  std::string kind;
  int64_t count = 0;
};
// "dgx-h100:8", where the catalog has the node.
std::optional<Nodes> nodes_of(const std::string& cluster) {
  const size_t colon = cluster.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  Nodes nodes{cluster.substr(0, colon), 0};
  const std::vector<std::string> known = profiler::node_names();
  const char* const end = cluster.data() + cluster.size();
  const auto [stop, error] = std::from_chars(cluster.data() + colon + 1, end, nodes.count);
  const bool in_catalog = contains(known, nodes.kind);
  if (!in_catalog || error != std::errc{} || stop != end || nodes.count < 1) return std::nullopt;
  return nodes;
}

// The number of nodes that holds it: doubled until it does, then halved in between.
std::string with_more_nodes(const Trials& trials, const SearchProblem& problem) {
  constexpr int64_t kMostNodes = 1 << 14;
  const auto nodes = nodes_of(trials.request().cluster.name);
  if (!nodes || trials.request().gpus > 0 || !trials.request().profile.empty()) return "";
  const auto try_nodes = [&](int64_t count) {
    PlanRequest other = trials.request();
    other.cluster = {fmt::format("{}:{}", nodes->kind, count), {}};
    if (!trials.request().memory.empty()) other.memory = fmt::format("{}B", problem.memory_limit_bytes);
    return trials.fitting(resolve(other)->problem, other.cluster.name);
  };
  int64_t too_few = nodes->count, enough = 0;
  std::optional<RankedLayout> found;
  for (int64_t count = 2 * nodes->count; count <= kMostNodes && !found; count *= 2) {
    found = try_nodes(count);
    if (trials.over() && !found) return "";
    (found ? enough : too_few) = count;
  }
  if (!found) return "";
  while (enough - too_few > 1) {
    const int64_t middle = too_few + (enough - too_few) / 2;
    const auto fewer = try_nodes(middle);
    if (fewer) found = fewer;
    (fewer ? enough : too_few) = middle;
    if (trials.over()) return fmt::format("{}:{} holds it: {}", nodes->kind, enough, told(*found));
  }
  return fmt::format("the smallest cluster of this kind that holds it is {}:{}: {}", nodes->kind, enough,
                     told(*found));
}

// Options of the request may be what another framework refuses.
std::unique_ptr<Resolved> resolved_if_possible(const PlanRequest& request) {
  try {
    return resolve(request);
  } catch (const UserError&) {
    return nullptr;
  }
}

// Another framework that somebody can export to and that holds it on these GPUs.
std::string with_other_framework(const Trials& trials, const SearchProblem& problem) {
  if (!trials.request().profile.empty() || problem.cluster.device.kind == DeviceKind::cpu) return "";
  for (const frameworks::ExportTarget& target : frameworks::export_targets()) {
    const frameworks::Framework* framework = frameworks::find_framework(target.name);
    if (framework == nullptr || framework->name == problem.execution.framework || trials.over()) continue;
    if (frameworks::supports_model(*framework, problem.model, problem.precision)) continue;
    PlanRequest other = trials.request();
    other.framework = framework->name;
    other.execution.clear();
    other.recompute_modules.clear();
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
  remedy = with_more_nodes(trials, problem);
  const std::string other = with_other_framework(trials, problem);
  return other.empty() || remedy.empty() ? remedy + other : remedy + "\n    " + other;
}

}  // namespace mpt::planner
