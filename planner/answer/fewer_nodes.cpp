// SPDX-License-Identifier: Apache-2.0

// Plans for fewer nodes than the cluster has, and the checkpoint that is read to go on there.

#include <set>
#include <tuple>

#include "base/clock.h"
#include "base/interruption.h"
#include "base/quantity.h"
#include "frameworks/framework.h"
#include "models/footprint.h"
#include "planner/answer/recommend.h"
#include "planner/explain/nothing_divides.h"

namespace mpt::planner {
namespace {

// The same request on the first nodes of the cluster: idle ones delay nobody.
std::unique_ptr<Resolved> on_nodes(const Resolved& resolved, int64_t nodes) {
  PlanRequest request = resolved.request;
  request.cluster.value = resolved.problem.cluster;
  request.gpus = nodes * resolved.problem.cluster.devices_per_node;
  request.or_nodes.clear();
  return resolve(request);
}

// Why nothing fits. Where nothing divides: batches that would do, and the nearest number of nodes.
std::string why_none(const SearchResult& result, const SearchProblem& problem, const Resolved& whole) {
  constexpr double kLongest = 3.0;  // seconds
  const Problem why = why_nothing_fits(result, problem);
  if (!result.over_memory.empty() || !result.certificate.optimal || stop_requested()) return why.found;
  const double end_s = now_s() + kLongest;
  const int64_t all = whole.problem.cluster.nodes_of(whole.problem.ranks);
  const int64_t nodes = problem.cluster.nodes_of(problem.ranks);
  for (int64_t apart = 1; apart < all; ++apart)
    for (const int64_t other : {nodes - apart, nodes + apart})
      if (other >= 1 && other < all && now_s() < end_s && has_layouts(on_nodes(whole, other)->problem))
        return fmt::format("{}; {}, or {} node{}", why.found, why.remedy, other, other == 1 ? "" : "s");
  return why.found + "; " + why.remedy;
}

FewerNodes best_on(int64_t nodes, const Resolved& whole, double limit_s, const Watch& watch) {
  const auto resolved = on_nodes(whole, nodes);
  resolved->problem.time_limit_s = limit_s;
  const auto search = likely_search(*resolved, watch, fmt::format("on {} nodes", nodes));
  FewerNodes found;
  found.nodes = nodes;
  found.gpus = resolved->problem.ranks;
  found.stopped = !search->result.certificate.optimal;
  if (search->result.best.empty())
    found.why = why_none(search->result, search->problem, whole);
  else
    found.best = plan_of(*search, resolved->request).ranking.front();
  return found;
}

CheckpointReading reading(const frameworks::CheckpointFacts& facts, const Layout& from, const Layout& to) {
  const auto judged = [&](const Layout& l) { return facts.zero.empty() || contains(facts.zero, l.zero); };
  const auto split = [](const Layout& l) {  // which rank holds which weights
    return std::tuple(l.tensor, l.pipeline, l.chunks, l.expert, l.expert_split(), l.layers_per_stage);
  };
  const bool as_it_is = facts.same_split ? split(from) == split(to) : facts.prepared_by.empty();
  if (facts.seen.empty() || !judged(from) || !judged(to) || (!as_it_is && facts.prepared_by.empty()))
    return CheckpointReading::not_judged;
  return as_it_is ? CheckpointReading::as_it_is : CheckpointReading::prepared;
}

}  // namespace

void check_fewer_nodes(const Resolved& resolved) {
  const PlanRequest& r = resolved.request;
  const ClusterSpec& cluster = resolved.problem.cluster;
  if (!r.storage_bandwidth.empty()) parse_bandwidth(r.storage_bandwidth, "--storage-bandwidth");
  const int64_t all = cluster.nodes_of(resolved.problem.ranks);
  std::set<int64_t> known;
  for (const int64_t nodes : r.or_nodes) {
    const auto refuse_if = [&](bool wrong, const std::string& more, const std::string& expected,
                               const std::string& remedy) {
      if (wrong) refuse_input("--or-nodes", std::to_string(nodes) + more, expected, remedy);
    };
    refuse_if(r.pareto, " with --pareto", "one of the two", "leave --pareto out");
    refuse_if(cluster.mixed(), " of nodes that differ", "a cluster of one kind of node",
              "leave it out: a smaller --cluster says which nodes stay");
    refuse_if(all == 1, "", "a cluster of several nodes", "leave it out");
    refuse_if(r.or_nodes.size() > 16, fmt::format(" and {} others", r.or_nodes.size() - 1),
              "at most 16 numbers", fmt::format("--or-nodes {}", all - 1));
    refuse_if(nodes >= all, "", fmt::format("fewer than the {} nodes of the plan", all),
              fmt::format("--or-nodes {}", all - 1));
    refuse_if(!known.insert(nodes).second, " twice", "each number once", fmt::format("--or-nodes {}", nodes));
  }
}

void add_fewer_nodes(const Resolved& resolved, double start_s, const Watch& watch, Plan& plan) {
  const PlanRequest& r = resolved.request;
  const auto* const framework = frameworks::find_framework(plan.layout.execution->framework);
  const auto facts = framework != nullptr ? framework->checkpoint : frameworks::CheckpointFacts{};
  for (const int64_t nodes : r.or_nodes) {
    constexpr double kAtLeast = 1e-6;  // zero would be no limit
    const double left_s = r.time_limit_s - (now_s() - start_s);
    const auto waiting = double(r.or_nodes.size() - plan.fewer_nodes.size());
    plan.fewer_nodes.push_back(best_on(nodes, resolved, std::max(kAtLeast, left_s / waiting), watch));
    if (auto& last = plan.fewer_nodes.back(); last.best)
      last.reads = reading(facts, plan.layout, last.best->layout);
  }
  CheckpointCost& cost = plan.checkpoint.emplace();
  if (facts.seen.empty()) return;
  const auto held =
      models::checkpoint_bytes(plan.model, plan.layout, facts.holds_weights, facts.holds_masters);
  cost = {held.weights, facts.holds_moments ? held.moments : 0, facts.prepared_by, 0.0};
  if (r.storage_bandwidth.empty()) return;
  cost.read_s = double(cost.weight_bytes + cost.moment_bytes) / parse_bandwidth(r.storage_bandwidth, "");
}

}  // namespace mpt::planner
