// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/rounds.h"

#include <map>
#include <tuple>

#include "base/error.h"

namespace mpt::planner {
namespace {

// The instruction that each instruction of the timeline waited for last; -1: none.
std::vector<InstructionId> last_waits(const StepProgram& program, const Timeline& timeline) {
  std::vector<InstructionId> found(timeline.spans.size(), -1),
      last_of_lane(size_t(program.ranks) * kStreamCount, -1);
  const auto end_s = [&](InstructionId id) { return id < 0 ? -1.0 : timeline.spans[size_t(id)].end_s; };
  for (InstructionId id = 0; id < InstructionId(found.size()); ++id) {
    InstructionId& last = found[size_t(id)];
    for (const InstructionId wait : program.waits(id))
      if (end_s(wait) > end_s(last)) last = wait;
    for (const Lane& lane : program.lanes(id)) {
      InstructionId& before = last_of_lane[size_t(lane.index())];
      if (end_s(before) > end_s(last)) last = before;
      before = id;
    }
  }
  return found;
}

// Repeats a part of the path, latest first, that begins and ends with the same kind of instruction in the
// middle. Takes the part with the smallest remainder.
// Only where backwards are whole: weight gradients that fill gaps may come in another order in each round.
void lengthen(const StepProgram& program, int64_t more, std::vector<PathPart>& path) {
  const bool splits = any_of(program.instructions,
                             [](const Instruction& i) { return i.kind == InstructionKind::weight_gradient; });
  const int edge = 3 * program.ranks, last = splits ? edge : program.micro_batches - edge;
  const int period = program.stages == program.ranks ? 1 : program.ranks;
  const auto at = [&](size_t i) -> const Instruction& { return program.instructions[size_t(path[i].id)]; };
  std::map<std::tuple<InstructionKind, int, int>, size_t> alike;
  size_t first = 0, end = 0;
  int64_t distance = 0;
  for (size_t i = 0; i < path.size(); ++i) {
    const Instruction& x = at(i);
    if (x.micro_batch < edge || x.micro_batch >= last) {
      alike.clear();
      continue;
    }
    const size_t later = alike.try_emplace({x.kind, x.stage, x.micro_batch % period}, i).first->second;
    const int64_t apart = at(later).micro_batch - x.micro_batch;
    if (apart == 0 || (distance > 0 && more % apart >= more % distance)) continue;
    distance = apart;
    first = i;
    end = later;
  }
  if (distance == 0) return;  // still a part of some path
  for (size_t i = end; i < first; ++i) path[i].times += more / distance;
  // The remainder goes along a lane.
  const Instruction& x = at(first);
  const Lane lane = program.lanes(path[first].id).front();
  const int stop = x.micro_batch + int(more % distance);
  for (InstructionId id = path[first].id; stop > x.micro_batch;) {
    const Instruction& next = program.instructions[size_t(++id)];
    if (!contains(program.lanes(id), lane)) continue;
    path.push_back({id});
    if (next.kind == x.kind && next.stage == x.stage && next.micro_batch == stop) break;
  }
}

}  // namespace

RepeatedStep with_more_rounds(const StepProgram& program, const Timeline& timeline, int64_t rounds) {
  const auto stages = size_t(program.stages), count = size_t(program.micro_batches);
  const auto round = size_t(program.ranks), middle = count / round / 2 * round;
  MPT_CHECK(count >= size_t(kFewestRounds) * round, "{} micro-batches are few rounds of {}", count, round);
  // No instruction waits for one of more than two rounds before.
  const size_t first = middle - 3 * round, end = middle + round;
  std::vector<double> ends(kInstructionKinds * stages * (end - first), 0.0);
  const auto at = [&](const Instruction& i) -> double& {
    return ends[(size_t(i.kind) * stages + size_t(i.stage)) * (end - first) + size_t(i.micro_batch) - first];
  };
  RepeatedStep moved{std::numeric_limits<double>::infinity(), 0.0};
  // Of one kind and stage, micro-batches come in turn within a round and rounds in turn.
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Instruction& i = program.instructions[size_t(id)];
    if (i.micro_batch < int(first) || i.micro_batch >= int(end)) continue;
    at(i) = timeline.spans[size_t(id)].end_s;
    if (i.micro_batch < int(first + round)) continue;
    const double by = at(i) - *(&at(i) - round);
    moved = {std::min(moved.least_s, by), std::max(moved.most_s, by)};
  }
  const double few_s = step_time_s(timeline);
  return {few_s + double(rounds) * moved.least_s, few_s + double(rounds) * moved.most_s};
}

std::vector<PathPart> critical_path(const StepProgram& program, const Timeline& timeline, InstructionId last,
                                    int64_t more) {
  const std::vector<InstructionId> before = last_waits(program, timeline);
  std::vector<PathPart> path;
  for (InstructionId id = last; id >= 0; id = before[size_t(id)]) path.push_back({id});
  if (more > 0) lengthen(program, more, path);
  return path;
}

}  // namespace mpt::planner
