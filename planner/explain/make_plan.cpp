// SPDX-License-Identifier: Apache-2.0
#include "models/layer_program.h"
#include "planner/explain/evidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/placement.h"

namespace mpt::planner {
namespace {

RankedLayout ranked(const Candidate& c, const SearchProblem& problem) {
  return {c.estimate.layout, c.evaluation.step_time_s, c.evaluation.bubble_share, c.evaluation.peak_bytes,
          double(problem.workload.tokens_per_step()) / c.evaluation.step_time_s};
}

}  // namespace

Plan make_plan(const SearchResult& result, const SearchProblem& problem) {
  const Candidate& best = result.best.front();
  Plan plan;
  plan.model = problem.model;
  plan.cluster = problem.cluster;
  plan.workload = problem.workload;
  plan.memory_limit_bytes = problem.memory_limit_bytes;
  plan.layout = best.estimate.layout;
  plan.schedule = schedule_rows(best.evaluation.schedule);
  plan.footprints = best.estimate.footprints;
  plan.program_digest = program_digest(best.evaluation.program);
  plan.cost = problem.cost->origin();
  plan.durations = best.estimate.cost.table();
  plan.rate_by_active_ranks = problem.cost->rate_by_active_ranks();
  store_timeline(plan, best.evaluation.program, best.evaluation.timeline);
  plan.prediction.model_flop_per_step =
      models::model_flop_per_token(problem.model, problem.workload.sequence) *
      double(problem.workload.tokens_per_step());
  plan.prediction.memory = best.evaluation.memory;
  plan.prediction.exposed = exposed_communication(plan.layout, breakdown(problem, best));
  plan.search = result.certificate;
  plan.links = links_of(plan.cluster, plan.layout);
  for (const Candidate& c : result.best) plan.ranking.push_back(ranked(c, problem));
  plan.reasons = reasons(result, problem);
  plan.rejected = rejections(result, problem);
  if (!best.evaluation.rejection) plan.evidence = evidence_beside(plan, published_evidence());
  return plan;
}

}  // namespace mpt::planner
