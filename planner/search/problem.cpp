// SPDX-License-Identifier: Apache-2.0
#include "planner/search/problem.h"

#include "base/clock.h"
#include "core/rank_grid.h"
#include "frameworks/supports/supports.h"
#include "planner/memory/memory_model.h"

namespace mpt::planner {

SearchProblem with_time_left(SearchProblem problem, double limit_s, double start_s) {
  constexpr double kAtLeast = 1e-6;  // zero would be no limit
  if (limit_s <= 0.0) return problem;
  const double left_s = std::max(kAtLeast, limit_s - (now_s() - start_s));
  problem.time_limit_s = problem.time_limit_s > 0.0 ? std::min(problem.time_limit_s, left_s) : left_s;
  return problem;
}

std::vector<PoolMask> pools_of_ranks(const SearchProblem& problem, const Layout& layout) {
  std::vector<PoolMask> masks(size_t(layout.pipeline), PoolMask{1});
  if (problem.pools.empty()) return masks;
  // Tensor and context ranks never leave a group, so one of each block tells where it lies.
  const int64_t block = layout.tensor * layout.context;
  const RankGrid grid(layout);
  for (int64_t p = 0; p < layout.pipeline; ++p) {
    masks[size_t(p)] = 0;
    for (int64_t d = 0; d < layout.data; ++d) {
      const int64_t rank = p * grid.stride(Axis::pipeline) + d * grid.stride(Axis::data);
      masks[size_t(p)] |= PoolMask{1} << group_of_rank(problem.cluster, rank / block * block);
    }
  }
  return masks;
}

bool SearchProblem::is_supported(const Layout& layout) const {
  if (framework || any_of.empty()) return true;
  return !refused([&](const frameworks::Framework& f) { return supports(f, model, layout, workload); });
}

std::vector<int64_t> limits_of_ranks(const SearchProblem& problem, const Layout& layout) {
  std::vector<int64_t> limits =
      communicator_bytes(problem.model, problem.cluster, layout, problem.workload.sequence);
  for (int64_t& limit : limits) limit = problem.memory_limit_bytes - limit;
  if (problem.pools.empty()) return limits;
  const std::vector<PoolMask> masks = pools_of_ranks(problem, layout);
  for (size_t p = 0; p < masks.size(); ++p) {
    int64_t least = problem.memory_limit_bytes;
    for (size_t pool = 0; pool < problem.pools.size(); ++pool)
      if (masks[p] >> pool & 1) least = std::min(least, problem.limit_bytes(pool));
    limits[p] -= problem.memory_limit_bytes - least;
  }
  return limits;
}

int64_t excess_bytes(const std::vector<int64_t>& peaks, const std::vector<int64_t>& limits) {
  int64_t excess = std::numeric_limits<int64_t>::min();
  for (size_t r = 0; r < peaks.size(); ++r) excess = std::max(excess, peaks[r] - limits[r]);
  return excess;
}

}  // namespace mpt::planner
