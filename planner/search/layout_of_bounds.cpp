// SPDX-License-Identifier: Apache-2.0
#include "planner/search/search.h"

#include "core/bound_words.h"
#include "core/schedule_catalog.h"
#include "frameworks/supports/supports.h"

namespace mpt::planner {
namespace {

// The first of the values, unless the field has one of them.
template <class T, class F>
void set(const std::vector<T>& values, F& field) {
  if (!values.empty() && !contains(values, T(field))) field = F(values.front());
}

void set_bounds(const SearchBounds& b, Layout& l) {
  set(b.tensor, l.tensor);
  set(b.context, l.context);
  set(b.pipeline, l.pipeline);
  set(b.data, l.data);
  set(b.expert, l.expert);
  set(b.expert_tensor, l.expert_tensor);
  set(b.zero, l.zero);
  set(b.micro_batch, l.micro_batch);
  set(b.recomputes, l.recompute);
  set(b.schedules, l.schedule);
  set(b.chunks, l.chunks);
  set(b.sequence_parallel, l.sequence_parallel);
  set(b.context_methods, l.context_method);
  set(b.offload, l.offload_optimizer);
  set(b.orders, l.order);
  if (const auto rejection = check_degrees(l))  // otherwise their products could overflow
    throw UserError(Problem{"layout", rejection->reason, "", "choose smaller degrees"});
}

// The framework's default, or else the next stage that it has.
int64_t usual_zero(const SearchProblem& problem, const Layout& l) {
  if (!problem.framework || l.replicas() == 1) return 0;
  const frameworks::Abilities& a = problem.framework->abilities;
  for (const int64_t zero : l.pipeline > 1 ? a.zero_in_pipeline : a.zero)
    if (!frameworks::supports_sharding(*problem.framework, problem.model, l,
                                       {zero, zero > 0 ? l.replicas() : 1, false}))
      return zero;
  return 0;
}

bool usual_sequence_parallel(const SearchProblem& problem, const Layout& l) {
  return l.tensor > 1 && (l.expert > 1 || has_sequence_parallel_by_default(problem));
}

void set_schedule(const SearchProblem& problem, Layout& l) {
  const SearchBounds& b = problem.bounds;
  if (b.schedules.empty()) l.schedule = l.chunks > 1 ? "interleaved" : "1f1b";
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
  set_bounds(b, l);
  if (b.data.empty()) l.data = std::max<int64_t>(1, problem.ranks / (l.tensor * l.context * l.pipeline));
  // Experts are split like the dense layers if there are enough ranks for them, otherwise they stay whole.
  const bool whole = l.tensor * l.context * l.data % (l.expert * l.tensor) != 0;
  if (b.expert_tensor.empty()) l.expert_tensor = whole ? 1 : 0;
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  if (b.sequence_parallel.empty()) l.sequence_parallel = usual_sequence_parallel(problem, l);
  problem.set_overlaps(l);
  if (b.zero.empty()) l.zero = usual_zero(problem, l);
  l.shard = l.zero > 0 ? l.replicas() : 1;
  set_schedule(problem, l);
  return l;
}

Layout within_bounds(const SearchProblem& problem, const Layout& from) {
  const SearchBounds& b = problem.bounds;
  const bool partly = !b.recomputes.empty() && recomputes_partly(from);
  if (broken_bounds(b, from).empty() && !partly) return from;
  Layout l = from;
  set_bounds(b, l);
  if (b.data.empty()) l.data = std::max<int64_t>(1, from.ranks() / (l.tensor * l.context * l.pipeline));
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
  if (b.sequence_parallel.empty() && (from.tensor == 1 || l.tensor == 1))
    l.sequence_parallel = usual_sequence_parallel(problem, l);
  const bool all = from.zero == 0 || from.shard == from.replicas();
  l.shard = l.zero == 0 ? 1 : all ? l.replicas() : from.shard;
  const bool same = l.stages() == from.stages() && l.schedule == from.schedule;
  if (partly || l.recompute != from.recompute || !same) l.recomputed_layers.clear();
  if (!same) set_schedule(problem, l);
  return l;
}

}  // namespace mpt::planner
