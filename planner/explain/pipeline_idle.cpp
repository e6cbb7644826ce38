// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/plan_parts.h"

#include <algorithm>
#include <array>
#include <vector>

#include "planner/search/arrangement.h"

namespace mpt::planner {
namespace {

struct Alone {
  double step_s = 0.0, idle_s = 0.0;  // idle: average over ranks
};
Alone simulated(const StepProgram& program, const std::vector<double>& durations_s,
                const Contention& contention) {
  const Timeline timeline = simulate(program, durations_s, contention);
  const double step_s = step_time_s(timeline);
  return {step_s, step_s * bubble_share(program, timeline)};
}

// Each kind of work takes its mean over all stages.
void make_stages_equal(const StepProgram& program, std::vector<double>& durations_s) {
  std::array<double, kInstructionKinds> seconds{}, count{};
  for (size_t id = 0; id < durations_s.size(); ++id) {
    const auto kind = size_t(program.instructions[id].kind);
    seconds[kind] += durations_s[id];
    count[kind] += 1.0;
  }
  for (size_t id = 0; id < durations_s.size(); ++id) {
    const auto kind = size_t(program.instructions[id].kind);
    durations_s[id] = seconds[kind] / count[kind];
  }
}

}  // namespace

PipelineIdle pipeline_idle(const StepProgram& program, std::span<const double> durations_s,
                           const Contention& contention, double step_s, double idle_share) {
  if (!(step_s > 0.0)) return {};
  std::vector<double> compute_s(durations_s.begin(), durations_s.end());
  for (size_t id = 0; id < compute_s.size(); ++id)
    if (!program.instructions[id].is_compute()) compute_s[id] = 0.0;
  const Alone unequal = simulated(program, compute_s, contention);
  make_stages_equal(program, compute_s);
  const Alone equal = simulated(program, compute_s, contention);
  if (!(equal.step_s > 0.0)) return {0.0, 0.0, idle_share};
  // The idle share of the step with equal stages is applied to the step without communication.
  const double without = std::clamp(unequal.idle_s / step_s, 0.0, idle_share);
  const double fill = std::clamp(equal.idle_s / equal.step_s * unequal.step_s / step_s, 0.0, without);
  return {fill, without - fill, idle_share - without};
}

std::optional<PipelineIdle> pipeline_idle(const SearchProblem& problem, const Candidate& candidate) {
  const Evaluation& e = candidate.evaluation;
  const Layout& layout = candidate.estimate.layout;
  if (layout.pipeline < 2) return std::nullopt;
  return pipeline_idle(e.program, e.durations_s, contention_of(problem, layout), e.step_time_s,
                       std::clamp(e.bubble_share, 0.0, 1.0));
}

}  // namespace mpt::planner
