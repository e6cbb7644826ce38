// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_parts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/quantity.h"
#include "core/rank_grid.h"
#include "planner/cost/collective.h"

namespace mpt::planner {
namespace {

constexpr const char* kGradientAxis = "gradients";

const LinkLevel& level_of(const ClusterSpec& cluster, const GroupPlace& group) {
  return cluster.levels[level_of_blocks(cluster, group.extent)];
}

// The slowest link between neighbours of the pipeline.
const LinkLevel& pipeline_level(const ClusterSpec& cluster, const Layout& layout) {
  const int64_t stride = RankGrid(layout).stride(Axis::pipeline);
  const LinkLevel* slowest = nullptr;
  double slowest_s = -1.0;
  for (int64_t p = 0; p + 1 < layout.pipeline; ++p) {
    const int64_t first = p * stride, last = (p + 2) * stride - 1;
    const double seconds = message_s(kMiB, first, last, stride, cluster);
    if (seconds <= slowest_s) continue;
    slowest = link_of_ranks(cluster, first, last).level;
    slowest_s = seconds;
  }
  return *slowest;
}

}  // namespace

std::vector<AxisLink> links_of(const ClusterSpec& cluster, const Layout& layout) {
  std::vector<AxisLink> links;
  if (cluster.levels.empty()) return links;
  if (layout.tensor > 1) links.push_back({"tensor", layout.tensor, level_of(cluster, tensor_group(layout))});
  if (layout.context > 1)
    links.push_back({"context", layout.context, level_of(cluster, context_group(layout))});
  if (layout.expert > 1)
    links.push_back({"expert", layout.expert, level_of(cluster, expert_parallel_group(layout))});
  if (layout.pipeline > 1) links.push_back({"pipeline", layout.pipeline, pipeline_level(cluster, layout)});
  if (layout.replicas() > 1)
    links.push_back({kGradientAxis, layout.replicas(), level_of(cluster, data_group(layout))});
  return links;
}

std::string describe_links(const ClusterSpec& cluster, const Layout& layout) {
  const auto traffic = [](const AxisLink& link) {
    if (link.axis == "pipeline") return fmt::format("transfers between {} stages", link.degree);
    if (link.axis == kGradientAxis) return fmt::format("gradient sums of {}", link.degree);
    return fmt::format("{}-parallel traffic of {}", link.axis, link.degree);
  };
  // By link, innermost first.
  std::vector<std::pair<std::string, std::vector<std::string>>> carried;
  for (const AxisLink& link : links_of(cluster, layout)) {
    const auto found = find_if(carried, [&](const auto& entry) { return entry.first == link.level.name; });
    auto& entry =
        found != carried.end() ? *found : carried.emplace_back(link.level.name, std::vector<std::string>{});
    entry.second.push_back(traffic(link));
  }
  std::vector<std::string> parts;
  for (const auto& [name, all] : carried)
    parts.push_back(fmt::format("{} carries {}", name, fmt::join(all, ", ")));
  return fmt::format("{}.", fmt::join(parts, "; "));
}

std::string describe_groups(const SearchProblem& problem, const Candidate& candidate) {
  const Layout& layout = candidate.estimate.layout;
  struct Held {
    int64_t ranks = 0, layers = 0, peak_bytes = 0;
  };
  std::map<PoolMask, Held> held;
  const std::vector<PoolMask> masks = pools_of_ranks(problem, layout);
  const StepProgram& program = candidate.evaluation.program;
  for (const PoolMask mask : masks) ++held[mask].ranks;
  for (size_t s = 0; s < layout.layers_per_stage.size(); ++s)
    held[masks[size_t(program.rank_of_stage[s])]].layers += layout.layers_per_stage[s];
  for (const RankMemory& m : candidate.evaluation.memory) {
    int64_t& peak = held[masks[size_t(m.rank)]].peak_bytes;
    peak = std::max(peak, m.peak_bytes);
  }
  std::vector<std::string> parts;
  for (const auto& [mask, h] : held) {
    std::vector<std::string> names;
    for (size_t g = 0; g < problem.cluster.groups.size(); ++g)
      if (mask >> g & 1) names.push_back(problem.cluster.groups[g].name);
    parts.push_back(fmt::format("{} {} with {} layers on {} (at most {} per GPU)", h.ranks,
                                h.ranks == 1 ? "stage" : "stages", h.layers, fmt::join(names, " and "),
                                format_bytes(double(h.peak_bytes))));
  }
  return fmt::format("Placement: {}.", fmt::join(parts, "; "));
}

}  // namespace mpt::planner
