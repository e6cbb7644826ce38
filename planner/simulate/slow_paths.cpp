// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/slow_paths.h"

#include "planner/simulate/rounds.h"

namespace mpt::planner {
void SlowPaths::add(const StepProgram& program, const Timeline& timeline, int64_t more) {
  constexpr size_t kMost = 4;  // of one program
  std::map<std::pair<int, InstructionKind>, int64_t> counts;
  const auto count = [&](const PathPart& part) {
    const Instruction& i = program.instructions[size_t(part.id)];
    counts[{i.stage, i.kind}] += part.times;
  };
  const std::vector<Span>& spans = timeline.spans;
  const auto latest = max_by(spans, [](const Span& span) { return span.end_s; });
  // An unfinished step ends where a rank has too much left; a finished one with whatever is latest.
  const bool whole = spans.size() == program.instructions.size();
  const auto last = InstructionId((whole ? latest : spans.end() - 1) - spans.begin());
  const Lane own = program.lanes(last).front();
  for (InstructionId id = last + 1; id < program.size(); ++id)
    if (!whole && program.lanes(id).front() == own) count({id});
  for (const PathPart& part : critical_path(program, timeline, last, more)) count(part);
  if (paths_.size() == kMost) paths_.pop_back();
  std::vector<Term>& path = *paths_.emplace(paths_.begin());
  for (const auto& [of, times] : counts) path.push_back({of.first, int32_t(times), of.second});
}

bool SlowPaths::take_longer_than(double limit_s, const StepCost& cost, double best_rate) {
  const auto computes = [](InstructionKind kind) {
    return kind < InstructionKind::transfer_activation || kind == InstructionKind::optimizer_step;
  };

  const auto seconds = [&](const std::vector<Term>& path) {
    double sum_s = 0.0;
    // Transfers may stand among compute, and then go at its rate.
    for (const Term& term : path)
      sum_s += term.count * cost.of(term.kind, term.stage) /
               (computes(term.kind) ? best_rate : std::max(1.0, best_rate));
    // A rounding error must not turn the bound into more than the time it bounds.
    return sum_s * (1.0 - 1e-9);
  };
  const auto longer = find_if(paths_, [&](const auto& path) { return seconds(path) > limit_s; });
  if (longer == paths_.end()) return false;
  std::rotate(paths_.begin(), longer, longer + 1);
  return true;
}

}  // namespace mpt::planner
