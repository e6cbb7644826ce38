// SPDX-License-Identifier: Apache-2.0
#include "reports/run_result.h"

namespace mpt::reports {
namespace {

constexpr size_t kWarmUpSteps = 3;

template <class F>
double median_of(const RunResult& result, F&& value) {
  std::vector<double> values;
  for (size_t i = warm_up_steps(result.steps.size()); i < result.steps.size(); ++i)
    values.push_back(value(result.steps[i]));
  return median(std::move(values));
}

}  // namespace

size_t warm_up_steps(size_t steps) { return steps > 2 * kWarmUpSteps ? kWarmUpSteps : 0; }

double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

std::vector<InstructionDuration> mean_durations(const StepProgram& program, const Timeline& timeline) {
  std::map<std::pair<InstructionKind, int64_t>, std::pair<double, int64_t>> sums;
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    auto& [seconds, count] = sums[{i.kind, i.stage}];
    seconds += timeline.spans[size_t(id)].seconds();
    ++count;
  }
  std::vector<InstructionDuration> means;
  for (const auto& [k, sum] : sums) means.push_back({k.first, k.second, sum.first / double(sum.second)});
  return means;
}

std::vector<int64_t> find_stragglers(const std::vector<RankRecord>& ranks,
                                     const std::vector<int64_t>& stage_of, double factor) {
  std::map<int64_t, std::vector<double>> of_stage;
  for (size_t i = 0; i < ranks.size(); ++i) of_stage[stage_of[i]].push_back(ranks[i].compute_s);
  for (auto& [stage, times] : of_stage) std::sort(times.begin(), times.end());
  std::vector<int64_t> found;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const std::vector<double>& times = of_stage[stage_of[i]];
    if (times.size() >= 3 && ranks[i].compute_s > factor * times[times.size() / 2])
      found.push_back(ranks[i].rank);
  }
  return found;
}

double median_step_time_s(const RunResult& result) {
  return median_of(result, [](const StepRecord& r) { return r.step_time_s; });
}

double median_bubble_share(const RunResult& result) {
  return median_of(result, [](const StepRecord& r) { return r.bubble_share; });
}

}  // namespace mpt::reports
