// SPDX-License-Identifier: Apache-2.0
#pragma once

// Executor: executes one rank's part of a StepProgram, in list order. It has no rules about order or overlap:
// instructions in different lanes may overlap unless one waits for the other.

#include <functional>
#include <span>
#include <vector>

#include "core/step_program.h"
#include "core/timeline.h"

namespace mpt::runtime {

/// The streams of one rank. Work of a stream runs in launch order. A work item also waits for the earlier
/// instructions in its list, which may be in other streams of the same rank.
class Lanes {
 public:
  virtual ~Lanes() = default;

  /// Forgets the instructions of the last step. All launched work must be complete.
  virtual void begin_step() = 0;
  virtual void launch(InstructionId id, Stream stream, std::span<const InstructionId> waits,
                      std::function<void()> work) = 0;
  /// Returns when all launched work has been submitted to the device. Rethrows like synchronize().
  virtual void hand_over() { synchronize(); }
  /// Returns when all launched work is complete. Rethrows the first failure; later work was skipped.
  virtual void synchronize() = 0;
  /// Begin and end of instruction `id` in this step, in seconds of a clock that all ranks of the process
  /// share.
  virtual Span span(InstructionId id) const = 0;
};

/// Executes an instruction on one rank. A transfer or collective synchronizes with its other ranks inside.
class InstructionHandler {
 public:
  virtual ~InstructionHandler() = default;
  virtual void run(InstructionId id) = 0;
};

/// The part of a program that is executed. forward: forwards, their transfers and the sum of the loss, for
/// validation.
enum class Pass { training, forward };

/// How instructions of different lanes are handed to the device. in_turn: each after its predecessor in the
/// list. Then submitted work waits only for instructions that every rank submits no later.
enum class Handing { at_once, in_turn };

class Executor {
 public:
  /// `rank` is the pipeline rank. All references must outlive the executor.
  Executor(const StepProgram& program, int rank, Lanes& lanes, InstructionHandler& handler,
           Pass pass = Pass::training);

  /// Executes one step; returns when this rank has finished it. All ranks of a run must use the same
  /// `handing`.
  void run_step(Handing handing = Handing::at_once);

 private:
  struct Entry {
    InstructionId id;
    Stream stream;
    std::vector<InstructionId> waits;  // for own instructions; a transfer itself synchronizes ranks
  };

  Lanes& lanes_;
  InstructionHandler& handler_;
  std::vector<Entry> entries_;
};

}  // namespace mpt::runtime
