// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "base/error.h"
#include "frameworks/framework.h"
#include "frameworks/supports/supports.h"
#include "models/layer_program.h"
#include "planner/explain/confidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/plan_parts.h"
#include "planner/memory/memory_model.h"
#include "planner/search/arrangement.h"

namespace mpt::planner {

RankedLayout ranked(const Candidate& c, const SearchProblem& problem, const std::vector<Evidence>& evidence) {
  const RunsLike like{kind_of(problem.model, c.estimate.layout), ""};
  const double step_s = c.evaluation.step_time_s;
  // How full the fullest rank is, relative to its limit without any margin.
  const double memory_share =
      fullest_share(c.evaluation.memory, limits_of_ranks(without_margin(problem), c.estimate.layout));
  return {c.estimate.layout,
          step_s,
          c.evaluation.bubble_share,
          c.evaluation.peak_bytes,
          double(problem.workload.tokens_per_step()) / step_s,
          confidence({like, problem.cost->origin().source, step_s, memory_share,
                      problem.cluster.device.kind == DeviceKind::cpu},
                     evidence)};
}

namespace {

// For a mixed cluster: the prices of each kind of device.
CostOrigin origin_of(const SearchProblem& problem) {
  CostOrigin origin = problem.cost->origin();
  for (const DevicePool& pool : problem.pools) {
    const CostOrigin other = pool.cost->origin();
    if (origin.machine.find(other.machine) == std::string::npos) origin.machine += " and " + other.machine;
    if (other.source == "roofline") origin.source = other.source;
  }
  return origin;
}

// A plan has every instruction, though a few rounds of micro-batches told the time. Nothing: `found` has
// them.
std::optional<Candidate> whole_step(const SearchProblem& problem, const Candidate& found) {
  if (found.evaluation.more_micro_batches == 0) return std::nullopt;
  Candidate whole{found.estimate, evaluate_regardless(problem, found.estimate)};
  const double whole_s = whole.evaluation.step_time_s, found_s = found.evaluation.step_time_s;
  MPT_CHECK(std::abs(whole_s - found_s) <= 1e-9 * whole_s, "{}: {} s by a few rounds, {} s by all",
            layout_name(found.estimate.layout), found_s, whole_s);
  return whole;
}

}  // namespace

Plan make_plan(const SearchResult& result, const SearchProblem& problem) {
  const Candidate& found = result.best.front();
  const std::optional<Candidate> whole = whole_step(problem, found);
  const Candidate& best = whole ? *whole : found;
  Plan plan;
  plan.model = problem.model;
  plan.cluster = problem.cluster;
  plan.workload = problem.workload;
  plan.memory_limit_bytes = problem.memory_limit_bytes;
  plan.layout = best.estimate.layout;
  plan.schedule = schedule_rows(best.evaluation.schedule);
  plan.footprints = best.estimate.footprints;
  plan.program_digest = program_digest(best.evaluation.program);
  plan.cost = origin_of(problem);
  plan.durations = best.estimate.cost.table();
  plan.rate_by_active_ranks = problem.cost->rate_by_active_ranks();
  store_timeline(plan, best.evaluation.program, best.evaluation.timeline);
  plan.prediction.model_flop_per_step =
      models::model_flop_per_token(problem.model, problem.workload.sequence, problem.training) *
      double(problem.workload.tokens_per_step());
  plan.prediction.memory = best.evaluation.memory;
  plan.prediction.pipeline_idle = pipeline_idle(problem, best);
  plan.prediction.exposed = exposed_communication(plan.layout, breakdown(problem, best));
  plan.search = result.certificate;
  plan.links = links_of(plan.cluster, plan.layout);
  if (const auto* framework = frameworks::find_framework(plan.layout.execution->framework))
    plan.objective = frameworks::objective_of(*framework, plan.model, plan.layout, plan.workload);
  const std::vector<Evidence>& evidence = published_evidence();
  for (const Candidate& c : result.best)
    plan.ranking.push_back(ranked(&c == &found ? best : c, problem, evidence));
  plan.prediction.confidence = plan.ranking.front().confidence;
  plan.reasons = reasons(result, problem);
  plan.rejected = rejections(result, problem);
  if (!best.evaluation.rejection) plan.evidence = evidence_beside(plan, evidence);
  return plan;
}

}  // namespace mpt::planner
