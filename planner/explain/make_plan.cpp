// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "core/quantity.h"
#include "models/footprint.h"
#include "models/layer_program.h"
#include "planner/explain/evidence.h"
#include "planner/explain/explain.h"
#include "planner/explain/placement.h"
#include "planner/explain/utilisation.h"
#include "reports/table.h"
#include "reports/utilisation.h"

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

std::string describe_certificate(const SearchCertificate& c) {
  std::string text =
      fmt::format("\nCertificate: {} layouts = {} over memory + {} over the bound + {} simulated",
                  format_count(c.layouts), format_count(c.over_memory), format_count(c.over_bound),
                  format_count(c.simulated));
  if (c.same > 0) text += fmt::format(" + {} others under a second name", format_count(c.same));
  if (c.not_reached > 0) text += fmt::format(" + {} not reached", format_count(c.not_reached));
  const std::string proof =
      c.optimal      ? "the optimum of this cost model"
      : c.gap >= 1.0 ? "stopped before all of the space was bounded: the optimum may be any amount faster"
                     : fmt::format("stopped: the optimum is at most {} faster", format_percent(c.gap));
  return text + fmt::format("; {}, in {}\n", proof, format_seconds(c.seconds));
}

std::string describe_host_memory(const Plan& plan) {
  const std::vector<int64_t> stages = models::host_state_bytes(plan.model, plan.layout, plan.workload);
  std::vector<int64_t> ranks(size_t(plan.layout.pipeline), 0);
  for (size_t s = 0; s < stages.size(); ++s) ranks[size_t(plan.schedule.rank_of_stage[s])] += stages[s];
  const int64_t most = *std::max_element(ranks.begin(), ranks.end());
  return most == 0 ? ""
                   : fmt::format("The optimizer's state lies in the host's memory: up to {} per rank\n",
                                 format_bytes(double(most)));
}

std::string describe_plan(const Plan& plan) {
  reports::Table table(
      {{"layout", reports::Align::left}, {"step time"}, {"bubble"}, {"peak memory"}, {"tokens/s"}});
  for (const RankedLayout& r : plan.ranking) {
    table.add_row({layout_name(r.layout), format_seconds(r.step_time_s), format_percent(r.bubble_share),
                   format_bytes(double(r.peak_bytes)), format_count(int64_t(r.tokens_per_s))});
  }
  std::string text =
      fmt::format("{} on {} ({} devices), {} sequences of {} tokens per step, {} per rank\n\n",
                  plan.model.name, plan.cluster.name, plan.cluster.devices, plan.workload.global_batch,
                  plan.workload.sequence, format_bytes(double(plan.memory_limit_bytes)));
  text += table.text() + fmt::format("\nThe first: model work of {}\n", reports::describe_utilisation(plan));
  text += describe_host_memory(plan);
  text += "\nWhy the first\n";
  for (const std::string& reason : plan.reasons) text += "  " + reason + "\n";
  text += "\nWhat ruled the others out\n";
  for (const std::string& reason : plan.rejected) text += "  " + reason + "\n";
  text += describe_evidence(plan);
  text += describe_certificate(plan.search);
  text += fmt::format("Costs: {} of {}{}\n", plan.cost.source, plan.cost.machine,
                      plan.cost.date.empty() ? "" : ", " + plan.cost.date);
  return text;
}

std::string describe_prediction(const Plan& plan) {
  return fmt::format(
      "{}: {} per step, bubble {}, {} tokens/s, peak memory {}", layout_name(plan.layout),
      format_seconds(plan.prediction.step_time_s), format_percent(plan.prediction.bubble_share),
      format_count(int64_t(plan.prediction.tokens_per_s)), format_bytes(double(reports::peak_bytes(plan))));
}

}  // namespace mpt::planner
