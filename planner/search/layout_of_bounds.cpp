// SPDX-License-Identifier: Apache-2.0
#include "planner/search/layout_of_bounds.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "core/schedule_catalog.h"
#include "frameworks/supports/supports.h"

namespace mpt::planner {
namespace {

template <class T>
T one(const std::vector<T>& values, T otherwise) {
  return values.empty() ? otherwise : values.front();
}
bool one(const std::vector<Switch>& values, bool otherwise) {
  return values.empty() ? otherwise : values.front() == Switch::on;
}

void set_degrees(const SearchProblem& problem, Layout& l) {
  const SearchBounds& b = problem.bounds;
  l.tensor = one<int64_t>(b.tensor, 1);
  l.context = one<int64_t>(b.context, 1);
  l.pipeline = one<int64_t>(b.pipeline, 1);
  l.expert = one<int64_t>(b.expert, 1);
  if (const auto rejection = check_degrees(l))  // otherwise their products could overflow
    throw UserError(Problem{"layout", rejection->reason, "", "choose smaller degrees"});
  const int64_t fixed = l.tensor * l.context * l.pipeline;
  l.data = one<int64_t>(b.data, std::max<int64_t>(1, problem.ranks / fixed));
  // Experts are split like the dense layers if there are enough ranks for them, otherwise they stay whole.
  const int64_t pool = l.tensor * l.context * l.data;
  l.expert_tensor = one<int64_t>(b.expert_tensor, pool % (l.expert * l.tensor) == 0 ? 0 : 1);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
}

// The framework's default, or else the next stage that it has.
int64_t usual_zero(const SearchProblem& problem, const Layout& l) {
  if (!problem.framework || l.replicas() == 1) return 0;
  const frameworks::Abilities& a = problem.framework->abilities;
  for (const int64_t zero : l.pipeline > 1 ? a.zero_in_pipeline : a.zero) {
    if (!frameworks::supports_sharding(*problem.framework, problem.model, l,
                                       {zero, zero > 0 ? l.replicas() : 1, false}))
      return zero;
  }
  return 0;
}

void set_schedule(const SearchProblem& problem, Layout& l) {
  const SearchBounds& b = problem.bounds;
  l.chunks = one<int64_t>(b.chunks, 1);
  l.schedule = one<std::string>(b.schedules, l.chunks > 1 ? "interleaved" : "1f1b");
  const ScheduleEntry& entry = find_schedule(l.schedule, "--schedule");
  if (b.chunks.empty()) l.chunks = entry.min_chunks;
  if (l.chunks < entry.min_chunks || l.chunks > entry.max_chunks)
    refuse_input("--chunks", std::to_string(l.chunks),
                 fmt::format("{} to {} with {}", entry.min_chunks, entry.max_chunks, l.schedule));
  // With more stages than layers there is nothing to split; check() reports it.
  if (l.stages() <= problem.model.layers.count() + 2)
    l.layers_per_stage = even_stages(problem.model.layers.count(), l.stages());
}

}  // namespace

bool has_sequence_parallel_by_default(const SearchProblem& problem) {
  using frameworks::SequenceParallelRule;
  return problem.framework &&
         problem.framework->abilities.sequence_parallel == SequenceParallelRule::by_default;
}

Layout layout_of_bounds(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  Layout l;
  set_degrees(problem, l);
  l.sequence_parallel =
      one(b.sequence_parallel, l.tensor > 1 && (l.expert > 1 || has_sequence_parallel_by_default(problem)));
  l.context_method = one(b.context_methods, ContextMethod::ring);
  l.offload_optimizer = one(b.offload, false);
  l.order = one(b.orders, RankOrder::pipeline_outermost);
  l.micro_batch = one<int64_t>(b.micro_batch, 1);
  l.recompute = one(b.recomputes, Recompute::none);
  problem.set_overlaps(l);
  l.zero = one<int64_t>(b.zero, usual_zero(problem, l));
  l.shard = l.zero > 0 ? l.replicas() : 1;
  set_schedule(problem, l);
  return l;
}

}  // namespace mpt::planner
