// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_parts.h"

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

struct Alone {
  double step_s = 0.0, idle_s = 0.0;  // idle: average over ranks
};
Alone simulated(const StepProgram& program, const std::vector<double>& durations_s,
                const Contention& contention) {
  const Timeline timeline = simulate(program, durations_s, contention);
  const double step_s = step_time_s(timeline);
  return {step_s, step_s * bubble_share(program, timeline)};
}

// Each kind of work takes its mean over all stages.
void make_stages_equal(const StepProgram& program, std::vector<double>& durations_s) {
  std::array<double, kInstructionKinds> seconds{}, count{};
  for (size_t id = 0; id < durations_s.size(); ++id) {
    const auto kind = size_t(program.instructions[id].kind);
    seconds[kind] += durations_s[id];
    count[kind] += 1.0;
  }
  for (size_t id = 0; id < durations_s.size(); ++id) {
    const auto kind = size_t(program.instructions[id].kind);
    durations_s[id] = seconds[kind] / count[kind];
  }
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
  for (const auto& [by, all] : carried) parts.push_back(fmt::format("{} carries {}", by, joined(all, ", ")));
  return fmt::format("{}.", joined(parts, "; "));
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
                                h.ranks == 1 ? "stage" : "stages", h.layers, joined(names, " and "),
                                format_bytes(double(h.peak_bytes))));
  }
  return fmt::format("Placement: {}.", joined(parts, "; "));
}

PipelineIdle pipeline_idle(const StepProgram& program, std::span<const double> durations_s,
                           const Contention& contention, double step_s, double idle_share) {
  if (!(step_s > 0.0)) return {};
  std::vector<double> compute_s(durations_s.begin(), durations_s.end());
  for (size_t id = 0; id < compute_s.size(); ++id)
    if (!program.instructions[id].is_compute()) compute_s[id] = 0.0;
  const Alone unequal = simulated(program, compute_s, contention);
  make_stages_equal(program, compute_s);
  const Alone equal = simulated(program, compute_s, contention);
  if (!(equal.step_s > 0.0)) return {0.0, 0.0, idle_share};
  // The idle share of the step with equal stages is applied to the step without communication.
  const double without = std::clamp(unequal.idle_s / step_s, 0.0, idle_share);
  const double fill = std::clamp(equal.idle_s / equal.step_s * unequal.step_s / step_s, 0.0, without);
  return {fill, without - fill, idle_share - without};
}

std::optional<PipelineIdle> pipeline_idle(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  const Layout& layout = candidate.estimate.layout;
  if (layout.pipeline < 2) return std::nullopt;
  return pipeline_idle(e.program, e.durations_s, contention_of(problem, layout), e.step_time_s,
                       std::clamp(e.bubble_share, 0.0, 1.0));
}

}  // namespace mpt::planner
