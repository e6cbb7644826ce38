// SPDX-License-Identifier: Apache-2.0
#pragma once

// emulate(): executes a plan's program with the plan's own durations slept instead of computed. Queues, waits
// and meetings of ranks are the real ones: what a schedule does, and whether the simulator is right about it,
// shows on any machine. For tests alone: nobody trains with it.

#include <atomic>

#include "core/plan.h"
#include "runtime/train/trainer.h"

namespace mpt::runtime {

/// What may be wrong with the emulated machine: what `mpt-plan diagnose` is to find.
struct EmulatedFaults {
  int slow_rank = -1;  // computes longer
  double slow_rank_factor = 1.0;
  std::optional<CommunicationKind> slow_link;  // traffic of this kind takes longer
  double slow_link_factor = 1.0;
  double data_wait_s = 0.0;  // before each step
};

/// One thread per rank and stream, `steps` steps or until `stop`; durations are multiplied by `scale`, and
/// what was measured is divided by it again. Every rank of the plan takes part. Throws RunError as train()
/// does.
reports::RunResult emulate(const Plan& plan, int64_t steps, double scale, std::chrono::milliseconds timeout,
                           const EmulatedFaults& faults, const OnStep& on_step,
                           const std::atomic<bool>& stop);

}  // namespace mpt::runtime
