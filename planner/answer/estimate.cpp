// SPDX-License-Identifier: Apache-2.0

// estimate(): one given layout.

#include <fmt/format.h>

#include <array>

#include "base/error.h"
#include "core/schedule_catalog.h"
#include "core/ties.h"
#include "frameworks/supports/supports.h"
#include "planner/answer/recommend.h"
#include "planner/explain/idle_options.h"
#include "planner/explain/kernel_note.h"
#include "planner/explain/nothing_divides.h"
#include "planner/explain/screen.h"
#include "planner/observe/observed_plan.h"
#include "planner/search/price_cache.h"

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
  if (const auto rejection = check_degrees(l))  // else their products mean nothing
    throw UserError(Problem{"layout", rejection->reason, "", "choose smaller degrees"});
  const int64_t fixed = l.tensor * l.context * l.pipeline;
  l.data = one<int64_t>(b.data, std::max<int64_t>(1, problem.ranks / fixed));
  // Experts are split like the dense layers where that leaves room for them, else they stay whole.
  const int64_t pool = l.tensor * l.context * l.data;
  l.expert_tensor = one<int64_t>(b.expert_tensor, pool % (l.expert * l.tensor) == 0 ? 0 : 1);
  if (l.expert_tensor == l.tensor) l.expert_tensor = 0;
}

// The framework's own default: it shares nothing out where it can, or all states. In pipelines weights stay
// gathered.
int64_t usual_zero(const SearchProblem& problem, const Layout& l) {
  if (!problem.framework || l.replicas() == 1) return 0;
  using Stages = std::array<int64_t, 4>;
  const Stages order = !problem.framework->abilities.shards_by_default ? Stages{0, 3, 2, 1}
                       : l.pipeline > 1                                ? Stages{2, 3, 1, 0}
                                                                       : Stages{3, 2, 1, 0};
  for (const int64_t zero : order) {
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
  if (l.chunks < entry.min_chunks || l.chunks > entry.max_chunks) {
    throw UserError(Problem{"--chunks", std::to_string(l.chunks),
                            fmt::format("{} to {} with {}", entry.min_chunks, entry.max_chunks, l.schedule),
                            ""});
  }
  // Of more stages than layers there is nothing to split; check() says so.
  if (l.stages() <= problem.model.layers.count() + 2)
    l.layers_per_stage = even_stages(problem.model.layers.count(), l.stages());
}

std::optional<Rejection> refusal_of(const SearchProblem& problem, const Layout& layout) {
  if (!problem.framework) return std::nullopt;
  return frameworks::supports(*problem.framework, problem.model, layout, problem.workload);
}

// By the work of the layers, where the framework takes stages that differ.
std::optional<Layout> with_balanced_stages(const SearchProblem& problem, const Layout& layout) {
  if (layout.pipeline == 1 || problem.cluster.mixed() || !layout.recomputed_layers.empty() ||
      layout.stages() > problem.model.layers.count())
    return std::nullopt;
  PriceCache prices(problem);
  Layout balanced = layout;
  balanced.layers_per_stage = *prices.balanced(prices.split(layout), layout.stages(), {});
  const bool same = balanced.layers_per_stage == layout.layers_per_stage;
  if (same || check_layout(problem.model, balanced, problem.workload) || refusal_of(problem, balanced))
    return std::nullopt;
  return balanced;
}

void check(const SearchProblem& problem, const Layout& layout) {
  if (layout.ranks() > problem.cluster.devices) {
    throw UserError(
        Problem{"layout " + layout_name(layout), fmt::format("{} ranks", layout.ranks()),
                fmt::format("at most the {} devices of {}", problem.cluster.devices, problem.cluster.name),
                "change a degree, or give a larger --cluster"});
  }
  if (auto rejection = check_layout(problem.model, layout, problem.workload)) {
    throw UserError(Problem{
        "layout " + layout_name(layout), rejection->reason, "a layout that divides the model and the batch",
        has_layouts(problem) ? "change one of the two" : nothing_divides(problem).remedy});
  }
}

// The same on the devices that the layout uses, where it leaves some idle: prices change with the number of
// nodes.
void use_part(const Layout& layout, const Calibration& calibration, std::unique_ptr<Resolved>& resolved) {
  const SearchProblem& problem = resolved->problem;
  if (layout.ranks() >= problem.ranks) return;
  std::vector<std::string> notes = resolved->notes;
  notes.push_back(fmt::format("{} ranks of the layout leave {} of {} devices idle", layout.ranks(),
                              problem.ranks - layout.ranks(), problem.ranks));
  if (!problem.cluster.mixed() && resolved->request.profile.empty()) {
    PlanRequest part = resolved->request;
    part.gpus = layout.ranks();
    part.cluster.value = problem.cluster;
    part.memory = std::to_string(problem.memory_limit_bytes) + "B";
    resolved = resolve(part, calibration);
  }
  resolved->notes = std::move(notes);
}

}  // namespace

bool Estimated::fits() const {
  if (!plan.corrected || plan.corrected->layouts.front().peak_bytes == 0)
    return !candidate.evaluation.rejection;
  constexpr double kRather = 0.5;
  return plan.corrected->layouts.front().confidence.fits.value_or(1.0) >= kRather;
}

std::optional<OtherStages> faster_stages(const Estimated& e) {
  const SearchProblem& problem = e.resolved->problem;
  const auto layout = with_balanced_stages(problem, e.plan.layout);
  if (!layout) return std::nullopt;
  const Evaluation other = evaluate_regardless(problem, estimate(problem, *layout));
  if ((other.rejection && e.fits()) ||
      other.step_time_s > (1.0 - kEqualTimes) * e.plan.prediction.step_time_s)
    return std::nullopt;
  return OtherStages{layout->layers_per_stage, other.step_time_s};
}

bool needs_sequence_parallel(const SearchProblem& problem) {
  using frameworks::SequenceParallelRule;
  return problem.framework && problem.framework->abilities.sequence_parallel == SequenceParallelRule::always;
}

Layout layout_of_bounds(const SearchProblem& problem) {
  const SearchBounds& b = problem.bounds;
  Layout l;
  set_degrees(problem, l);
  l.sequence_parallel =
      one(b.sequence_parallel, l.tensor > 1 && (l.expert > 1 || needs_sequence_parallel(problem)));
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

Layout layout_to_estimate(const Resolved& resolved) {
  const SearchProblem& problem = resolved.problem;
  const PlanRequest& request = resolved.request;
  Layout layout = request.layout ? *request.layout : layout_of_bounds(problem);
  if (!request.layers_per_stage.empty()) layout.layers_per_stage = request.layers_per_stage;
  layout.precision = problem.precision;
  layout.execution = problem.execution;
  layout.selective = problem.selective;
  layout.training = problem.training;
  if (request.layout && !request.overlaps.empty()) problem.set_overlaps(layout);
  return layout;
}

Estimated estimate(const PlanRequest& asked) { return estimate(asked, shipped_calibration()); }

Estimated estimate(const PlanRequest& asked, const Calibration& calibration) {
  PlanRequest request = asked;
  if (request.memory.empty() && request.memory_margin.empty()) request.memory_margin = "0";
  Estimated e;
  e.resolved = resolve(request, calibration);
  const Layout layout = layout_to_estimate(*e.resolved);
  check(e.resolved->problem, layout);
  use_part(layout, calibration, e.resolved);
  const SearchProblem& problem = e.resolved->problem;
  e.candidate.estimate = estimate(problem, layout);
  e.candidate.evaluation = evaluate_regardless(problem, e.candidate.estimate);
  e.plan = plan_of(problem, e.candidate, asked);
  e.plan.notes = with_kernel_note(e.resolved->notes, e.plan);
  for (std::string& note : idle_options(asked, problem, layout)) e.plan.notes.push_back(std::move(note));
  e.refusal = refusal_of(problem, layout);
  if (e.refusal) e.plan.notes.push_back("This layout cannot run: " + e.refusal->reason + ".");
  if (!asked.observed.empty()) correct(asked, e);
  return e;
}

}  // namespace mpt::planner
