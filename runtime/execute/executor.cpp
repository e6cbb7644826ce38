// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/executor.h"

#include <array>
#include <map>
#include <set>
#include <utility>

namespace mpt::runtime {

namespace {

bool belongs_to(Pass pass, InstructionKind kind) {
  return pass == Pass::training || kind == InstructionKind::forward ||
         kind == InstructionKind::transfer_activation || kind == InstructionKind::reduce_norm;
}

// Which instructions the first micro-batch needs, on all ranks.
std::vector<bool> needed_by_first(const StepProgram& program) {
  std::vector<bool> needed(size_t(program.size()), false);
  for (InstructionId id = program.size() - 1; id >= 0; --id) {
    if (program.instructions[size_t(id)].micro_batch == 0) needed[size_t(id)] = true;
    if (!needed[size_t(id)]) continue;
    for (const InstructionId wait : program.waits(id)) needed[size_t(wait)] = true;
  }
  return needed;
}

}  // namespace

// What is left out is waited through: for what it would have waited for, and for what stands before it in its
// lane.
Executor::Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler, Pass pass,
                   Beginning beginning)
    : lanes_(lanes), handler_(handler), beginning_(beginning) {
  std::map<InstructionId, std::set<InstructionId>> through;  // of instructions of this rank that are left out
  std::array<InstructionId, kStreamCount> newest;
  newest.fill(-1);
  const std::vector<bool> of_first = needed_by_first(program);
  for (InstructionId id = 0; id < program.size(); ++id) {
    const auto lane = program.lane_on(id, rank);
    if (!lane) continue;
    const bool included = belongs_to(pass, program.instructions[size_t(id)].kind);
    std::set<InstructionId> waits;
    for (const InstructionId wait : program.waits(id)) {
      if (!program.lane_on(wait, rank)) continue;
      const auto left_out = through.find(wait);
      if (left_out == through.end()) {
        waits.insert(wait);
      } else {
        waits.insert(left_out->second.begin(), left_out->second.end());
      }
    }
    InstructionId& before = newest[size_t(lane->stream)];
    if (included) {
      entries_.push_back({id, lane->stream, {waits.begin(), waits.end()}, of_first[size_t(id)]});
      before = id;
    } else {
      if (before >= 0) waits.insert(before);
      through[id] = std::move(waits);
    }
  }
}

void Executor::launch(const Entry& entry) {
  lanes_.launch(entry.id, entry.stream, entry.waits, [this, id = entry.id] { handler_.run(id); });
}

// In list order the first unfinished instruction can always run, so ranks may block in any of them.
void Executor::run_step() {
  lanes_.begin_step();
  const bool first_alone = std::exchange(beginning_, Beginning::together) == Beginning::first_alone;
  for (const Entry& entry : entries_) {
    if (!first_alone || !entry.of_first) continue;
    launch(entry);
    lanes_.synchronize();
  }
  for (const Entry& entry : entries_) {
    if (!first_alone || !entry.of_first) launch(entry);
  }
  lanes_.synchronize();
}

}  // namespace mpt::runtime
