// SPDX-License-Identifier: Apache-2.0
#include "runtime/execute/executor.h"

namespace mpt::runtime {

namespace {

bool belongs_to(Pass pass, InstructionKind kind) {
  return pass == Pass::training || kind == InstructionKind::forward ||
         kind == InstructionKind::transfer_activation || kind == InstructionKind::reduce_norm;
}

}  // namespace

Executor::Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler, Pass pass)
    : lanes_(lanes), handler_(handler) {
  const auto kind_of = [&](InstructionId id) { return program.instructions[size_t(id)].kind; };
  for (InstructionId id = 0; id < program.size(); ++id) {
    const auto lane = program.lane_on(id, rank);
    if (!lane || !belongs_to(pass, kind_of(id))) continue;
    Entry entry{id, lane->stream, {}};
    for (const InstructionId wait : program.waits(id)) {
      if (program.lane_on(wait, rank) && belongs_to(pass, kind_of(wait))) entry.waits.push_back(wait);
    }
    entries_.push_back(std::move(entry));
  }
}

void Executor::run_step() {
  lanes_.begin_step();
  for (const Entry& entry : entries_) {
    lanes_.launch(entry.id, entry.stream, entry.waits, [this, id = entry.id] { handler_.run(id); });
  }
  lanes_.synchronize();
}

}  // namespace mpt::runtime
