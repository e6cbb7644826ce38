// SPDX-License-Identifier: Apache-2.0

// estimate(): one given layout.

#include "base/error.h"
#include "base/ranges.h"
#include "base/words.h"
#include "core/ties.h"
#include "frameworks/supports/supports.h"
#include "planner/answer/recommend.h"
#include "planner/explain/nothing_divides.h"
#include "planner/explain/plan_notes.h"
#include "planner/observe/observed_plan.h"
#include "planner/search/price_cache.h"
#include "planner/search/search.h"
#include "profiler/hardware/catalog.h"

namespace mpt::planner {
namespace {

std::optional<Rejection> refusal_of(const SearchProblem& problem, const Layout& layout) {
  if (!problem.framework) return std::nullopt;
  auto refused = frameworks::supports(*problem.framework, problem.model, layout, problem.workload);
  if (refused && refused->constraint == "objective") return std::nullopt;  // it runs, with a note in the plan
  return refused;
}

// Stages by the work of their layers, if the framework accepts stages of different sizes.
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

// What to change if a layout does not divide: another batch, other degrees, or the result of a search.
std::string remedy_of(const SearchProblem& problem, const Layout& layout) {
  if (layout.sequence_parallel && layout.tensor == 1) return "--sp off, or --tp 2";
  const int64_t unit = layout.data * layout.micro_batch;
  Workload workload = problem.workload;
  auto batches = nearest_batches(workload.global_batch, unit, unit * layout.pipeline, [&](int64_t batch) {
    workload.global_batch = batch;
    return !check_layout(problem.model, layout, workload);
  });
  if (!batches.empty()) return batches;
  return has_layouts(problem) ? "mpt-plan without estimate finds one" : nothing_divides(problem).remedy;
}

void check(const Resolved& resolved, const Layout& layout) {
  const SearchProblem& problem = resolved.problem;
  const std::string where = "layout " + layout_name(layout);
  if (const int64_t ranks = layout.ranks(), there = problem.cluster.devices; ranks > there) {
    const std::string fewer = has_layouts(problem) ? "" : nothing_divides(problem).remedy + ", or ";
    refuse_input(where, fmt::format("{} ranks", ranks),
                 fmt::format("at most the {} devices of {}", there, problem.cluster.name),
                 fewer + (resolved.request.gpus > 0 ? fmt::format("--gpus {}", ranks)
                                                    : profiler::larger_cluster(problem.cluster.name, ranks)));
  }
  if (auto rejection = check_layout(problem.model, layout, problem.workload))
    refuse_input(where, rejection->reason, "a layout that divides the model and the batch",
                 remedy_of(problem, layout));
}

// Resolves again for only the devices that the layout uses, if it leaves some idle. Prices depend on the
// number of nodes.
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

std::optional<Rejection> Estimated::lacks() const {
  constexpr double kRather = 0.5;
  const auto& rejection = candidate.evaluation.rejection;
  if (rejection && rejection->constraint == "host memory") return rejection;  // no run reports host memory
  const CorrectedLayout* const own = plan.corrected ? &plan.corrected->layouts.front() : nullptr;
  const auto& fits = (own != nullptr ? own->confidence : plan.prediction.confidence).fits;
  if (fits.value_or(rejection ? 0.0 : 1.0) >= kRather) return std::nullopt;
  if (own == nullptr || own->peak_bytes == 0) return rejection;
  return Rejection{"memory", -1, double(own->peak_bytes), double(plan.memory_limit_bytes), ""};
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

Layout layout_to_estimate(const Resolved& resolved) {
  const SearchProblem& problem = resolved.problem;
  const PlanRequest& request = resolved.request;
  const Json bounds = to_json(request.bounds);
  for (const auto& [field, values] : bounds.items())
    if (!request.layout && values.is_array() && values.size() > 1)
      refuse_input(option_of(field), values.dump(), "one value", "`compare` prices a list of values");
  Layout layout = request.layout ? within_bounds(problem, *request.layout) : layout_of_bounds(problem);
  if (!request.layers_per_stage.empty()) layout.layers_per_stage = request.layers_per_stage;
  problem.set_job(layout);
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
  check(*e.resolved, layout);
  use_part(layout, calibration, e.resolved);
  const SearchProblem& problem = e.resolved->problem;
  e.candidate = priced(problem, layout);
  e.plan = plan_of(problem, e.candidate, asked);
  e.plan.notes = with_kernel_note(e.resolved->notes, e.plan);
  for (std::string& note : idle_options(asked, problem, layout)) e.plan.notes.push_back(std::move(note));
  for (std::string& note : gradient_notes(e.plan)) e.plan.notes.push_back(std::move(note));
  e.refusal = refusal_of(problem, layout);
  if (e.refusal) {
    static const std::vector<std::string> kMayRun{"trains wrong", "not judged", "unplanned",
                                                  "micro-batch groups"};
    const bool runs = contains(kMayRun, e.refusal->constraint);
    e.plan.notes.push_back((runs ? "" : "This layout cannot run: ") + e.refusal->reason + ".");
  }
  if (!asked.observed.empty()) correct(asked, e);
  return e;
}

}  // namespace mpt::planner
