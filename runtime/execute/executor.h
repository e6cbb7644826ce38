// SPDX-License-Identifier: Apache-2.0
#pragma once

// Executor: does one rank's part of a StepProgram, in list order. It holds no rule about order or overlap of
// its own: what may run at once is what stands in different lanes without a wait between.

#include <vector>

#include "core/step_program.h"
#include "runtime/execute/lanes.h"

namespace mpt::runtime {

/// Does the work of an instruction on one rank. A transfer or collective meets its other ranks inside.
class InstructionHandler {
 public:
  virtual ~InstructionHandler() = default;
  virtual void run(InstructionId id) = 0;
};

/// What of a program is done. forward: its forwards, their transfers and the sum of the loss, for validation.
enum class Pass { training, forward };

/// How instructions of different lanes are handed to the device. in_turn: each after the one before it in the
/// list. So what the device has been asked for waits only for instructions that no rank comes to later.
enum class Handing { at_once, in_turn };

class Executor {
 public:
  /// `rank` is the pipeline rank. All references must outlive the executor.
  Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler,
           Pass pass = Pass::training);

  /// One step; returns when all of it is done on this rank. All ranks of a run hand over alike.
  void run_step(Handing handing = Handing::at_once);

 private:
  struct Entry {
    InstructionId id;
    Stream stream;
    std::vector<InstructionId> waits;  // for this rank's own; the others are met in the transfer
  };

  Lanes& lanes_;
  InstructionHandler& handler_;
  std::vector<Entry> entries_;
};

}  // namespace mpt::runtime
