// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lanes: the streams of one rank. Work of a stream runs in launch order. A work item also waits for the
// earlier instructions in its list, which may be in other streams of the same rank.

#include <functional>
#include <span>

#include "core/step_program.h"
#include "core/timeline.h"

namespace mpt::runtime {

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

}  // namespace mpt::runtime
