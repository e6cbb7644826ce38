// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/executor.h"

#include <array>
#include <map>
#include <set>

namespace mpt::runtime {

namespace {

bool belongs_to(Pass pass, InstructionKind kind) {
  return pass == Pass::training || kind == InstructionKind::forward ||
         kind == InstructionKind::transfer_activation || kind == InstructionKind::reduce_norm;
}

}  // namespace

// Waits pass through instructions that are left out: an instruction that would wait for one waits instead for
// its waits, and for its predecessor in the lane.
Executor::Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler, Pass pass)
    : lanes_(lanes), handler_(handler) {
  std::map<InstructionId, std::set<InstructionId>> through;  // waits of this rank's omitted instructions
  std::array<InstructionId, kStreamCount> newest;
  newest.fill(-1);
  for (InstructionId id = 0; id < program.size(); ++id) {
    const auto lane = program.lane_on(id, rank);
    if (!lane) continue;
    const bool included = belongs_to(pass, program.instructions[size_t(id)].kind);
    std::set<InstructionId> waits;
    for (const InstructionId wait : program.waits(id)) {
      if (!program.lane_on(wait, rank)) continue;
      const auto left_out = through.find(wait);
      if (left_out == through.end())
        waits.insert(wait);
      else
        waits.insert(left_out->second.begin(), left_out->second.end());
    }
    InstructionId& before = newest[size_t(lane->stream)];
    if (included) {
      entries_.push_back({id, lane->stream, {waits.begin(), waits.end()}});
      before = id;
    } else {
      if (before >= 0) waits.insert(before);
      through[id] = std::move(waits);
    }
  }
}

// In list order the first unfinished instruction can always run, so any instruction may block its rank.
void Executor::run_step(Handing handing) {
  lanes_.begin_step();
  for (const Entry& entry : entries_) {
    lanes_.launch(entry.id, entry.stream, entry.waits, [this, id = entry.id] { handler_.run(id); });
    if (handing == Handing::in_turn) lanes_.hand_over();
  }
  lanes_.synchronize();
}

}  // namespace mpt::runtime
