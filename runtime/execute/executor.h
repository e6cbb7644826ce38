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

/// How the first step begins. first_alone: the first micro-batch passes the whole pipeline before others
/// start, one instruction after the other. So no transfer waits on a GPU while kernels are loaded there.
enum class Beginning { together, first_alone };

class Executor {
 public:
  /// `rank` is the pipeline rank. All ranks of a pipeline begin alike. All
  /// references must outlive the executor.
  Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler,
           Pass pass = Pass::training, Beginning beginning = Beginning::together);

  /// One step; returns when all of it is done on this rank.
  void run_step();

 private:
  struct Entry {
    InstructionId id;
    Stream stream;
    std::vector<InstructionId>
        waits;              // those that this rank takes part in; the others are met in the transfer
    bool of_first = false;  // the first micro-batch, or what it waits for
  };
  void launch(const Entry& entry);

  Lanes& lanes_;
  InstructionHandler& handler_;
  Beginning beginning_;  // of the next step
  std::vector<Entry> entries_;
};

}  // namespace mpt::runtime
