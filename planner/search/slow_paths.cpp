// SPDX-License-Identifier: Apache-2.0
#include "planner/search/slow_paths.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/ranges.h"

namespace mpt::planner {
namespace {

// Whether `later` starts no sooner than `earlier` ends, by a wait or a lane.
bool waits_for(const StepProgram& program, InstructionId later, InstructionId earlier) {
  const auto waits = program.waits(later);
  if (contains(waits, earlier)) return true;
  const auto lanes = program.lanes(later), others = program.lanes(earlier);
  return any_of(lanes, [&](const Lane& lane) { return contains(others, lane); });
}

}  // namespace

void SlowPaths::add(const StepProgram& program, const Timeline& timeline) {
  constexpr size_t kMost = 4;  // of one program
  std::map<std::pair<int, InstructionKind>, int32_t> counts;
  const auto count = [&](InstructionId id) {
    const Instruction& i = program.instructions[size_t(id)];
    ++counts[{i.stage, i.kind}];
  };
  const std::vector<Span>& spans = timeline.spans;
  const auto latest = max_by(spans, [](const Span& span) { return span.end_s; });
  // An unfinished step ends where a rank has too much left; a finished one with whatever is latest.
  const bool whole = spans.size() == program.instructions.size();
  auto at = InstructionId((whole ? latest : spans.end() - 1) - spans.begin());
  const Lane own = program.lanes(at).front();
  for (InstructionId id = at + 1; id < program.size(); ++id) {
    if (!whole && program.lanes(id).front() == own) count(id);
  }
  count(at);
  for (InstructionId id = at - 1; id >= 0; --id) {
    if (spans[size_t(id)].end_s != spans[size_t(at)].start_s || !waits_for(program, at, id)) continue;
    at = id;
    count(at);
  }
  if (paths_.size() == kMost) paths_.pop_back();
  std::vector<Term>& path = *paths_.emplace(paths_.begin());
  for (const auto& [of, times] : counts) path.push_back({of.first, times, of.second});
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
