// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lanes: the streams of one rank. Work of a stream runs in the order of launching; a piece of work also waits
// for the earlier instructions named with it, which may be in other streams of the same rank.

#include <functional>
#include <span>

#include "core/step_program.h"
#include "core/timeline.h"

namespace mpt::runtime {

class Lanes {
 public:
  virtual ~Lanes() = default;

  /// Forgets the instructions of the last step. Everything launched must be done.
  virtual void begin_step() = 0;
  virtual void launch(InstructionId id, Stream stream, std::span<const InstructionId> waits,
                      std::function<void()> work) = 0;
  /// Returns when the device has been asked for everything launched. Rethrows as synchronize() does.
  virtual void hand_over() { synchronize(); }
  /// Returns when everything launched is done. Rethrows the first failure; what came after it was skipped.
  virtual void synchronize() = 0;
  /// When instruction `id` of this step ran, in seconds of a clock that all ranks of the process share.
  virtual Span span(InstructionId id) const = 0;
};

}  // namespace mpt::runtime
