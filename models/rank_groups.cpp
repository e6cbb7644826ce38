// SPDX-License-Identifier: Apache-2.0
#include "models/rank_groups.h"

#include <set>

#include "models/footprint.h"

namespace mpt::models {
namespace {

// The block of `size` neighbours in `all` that holds `index`, and the ranks at its place in all blocks.
struct Blocks {
  RankSet own, across;
};
Blocks blocks_of(const RankSet& all, int64_t index, int64_t size) {
  const int64_t place = (index - all.first) / all.step;
  return {{all.first + place / size * size * all.step, all.step, size},
          {all.first + place % size * all.step, all.step * size, all.count / size}};
}

// The threads that shard and sum the state of weights.
struct StateThreads {
  CallingThread state, shards, gradients;
};
StateThreads state_threads(const Layout& layout) {
  const bool gathers_beside = layout.replicas() > 1 && layout.overlap_parameter_gather;
  const bool side = gathers_beside || (layout.replicas() > 1 && layout.overlap_gradient_reduce);
  const bool early = side && layout.overlap_gradient_reduce && layout.zero < 2;
  const auto reducing = early ? CallingThread::side : CallingThread::reduction;
  StateThreads threads{side ? CallingThread::side : CallingThread::compute, reducing, reducing};
  // A group that serves only for sizes and places shares the communicator of another thread.
  if (layout.zero < 2 && !gathers_beside) threads.state = threads.shards;
  if (layout.zero == 3 || (layout.zero == 2 && gathers_beside)) threads.shards = threads.state;
  return threads;
}

}  // namespace

std::array<RankGroup, kGroupUses> stage_groups(const Layout& layout, const RankCoordinates& at) {
  const int64_t tensor = layout.tensor, context = layout.context;
  const int64_t index = (at.data * context + at.context) * tensor + at.tensor;
  const RankSet tensor_ranks{index - at.tensor, 1, tensor};
  const Blocks dense = blocks_of({at.tensor, tensor, layout.replicas()}, index, dense_shard(layout));
  const StateThreads threads = state_threads(layout);
  const bool ring = context > 1 && layout.context_method == ContextMethod::ring;
  std::array<RankGroup, kGroupUses> groups;
  const auto set = [&](GroupUse use, CallingThread thread, const RankSet& ranks) {
    groups[size_t(use)] = {thread, ranks.count == 1 ? RankSet{index} : ranks};
  };
  set(GroupUse::gradient_shards, threads.shards, dense.own);
  set(GroupUse::gradients, threads.gradients, dense.across);
  set(GroupUse::sharded_state, threads.state, dense.own);
  set(GroupUse::tensor, CallingThread::compute, tensor_ranks);
  set(GroupUse::tensor_beside, layout.overlap_tensor ? CallingThread::products : CallingThread::compute,
      tensor_ranks);
  set(GroupUse::tensor_end, CallingThread::reduction, tensor_ranks);
  set(GroupUse::context, ring ? CallingThread::ring : CallingThread::compute,
      {index - at.context * tensor, tensor, context});
  const int64_t spread = layout.expert > 1 ? layout.expert * layout.expert_split() : 1;
  const Blocks experts = blocks_of({0, 1, tensor * layout.replicas()}, index, spread);
  set(GroupUse::experts, CallingThread::compute, experts.own);
  const Blocks shares = layout.expert > 1 ? blocks_of(experts.across, index, expert_shard(layout)) : dense;
  set(GroupUse::expert_gradient_shards, threads.shards, shares.own);
  set(GroupUse::expert_gradients, threads.gradients, shares.across);
  set(GroupUse::expert_sharded_state, threads.state, shares.own);
  return groups;
}

RankGroup edge(const Layout& layout, bool activation, int64_t from, int64_t to) {
  const auto thread = !layout.overlap_transfer ? CallingThread::compute
                      : activation             ? CallingThread::activations
                                               : CallingThread::activation_gradients;
  return {thread, {from, to - from, 2, true}};
}

RankGroup pipeline_ends(std::span<const int> rank_of_stage) {
  const int64_t first = rank_of_stage.front(), last = rank_of_stage.back();
  return {CallingThread::reduction, {first, last - first, 2, true}};
}

std::vector<RankGroup> pipeline_groups(const Layout& layout, std::span<const int> rank_of_stage,
                                       bool shares_table) {
  std::vector<RankGroup> groups;
  std::set<RankGroup> known;
  for (size_t s = 0; s + 1 < rank_of_stage.size(); ++s) {
    const int lower = rank_of_stage[s], upper = rank_of_stage[s + 1];
    if (lower == upper) continue;
    for (const RankGroup& group : {edge(layout, true, lower, upper), edge(layout, false, upper, lower)})
      if (known.insert(group).second) groups.push_back(group);
  }
  if (shares_table && rank_of_stage.front() != rank_of_stage.back())
    groups.push_back(pipeline_ends(rank_of_stage));
  return groups;
}

std::vector<int64_t> members(const RankGrid& grid, const RankCoordinates& at, const RankSet& ranks) {
  const int64_t tensor = grid.degree(Axis::tensor), context = grid.degree(Axis::context);
  std::vector<int64_t> members;
  for (int64_t i = 0; i < ranks.count; ++i) {
    const int64_t index = ranks.first + i * ranks.step;
    RankCoordinates member = at;
    if (ranks.in_pipeline)
      member.pipeline = index;
    else
      member = {index % tensor, index / tensor / context, at.pipeline, index / tensor % context};
    members.push_back(grid.rank(member));
  }
  return members;
}

std::vector<int64_t> communicator_counts(const Layout& layout, std::span<const int> rank_of_stage,
                                         bool shares_table) {
  std::set<RankGroup> own;
  for (const RankGroup& group : stage_groups(layout, {}))
    if (group.ranks.count > 1) own.insert(group);
  std::vector<int64_t> counts(size_t(layout.pipeline), int64_t(own.size()));
  for (const RankGroup& group : pipeline_groups(layout, rank_of_stage, shares_table)) {
    ++counts[size_t(group.ranks.first)];
    ++counts[size_t(group.ranks.first + group.ranks.step)];
  }
  return counts;
}

}  // namespace mpt::models
