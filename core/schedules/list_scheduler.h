// SPDX-License-Identifier: Apache-2.0
#pragma once

// List scheduling of a pipeline step with given durations and memory: a free rank takes the best action that
// is ready and that memory admits. Forwards and input gradients come first, since other ranks wait for them.
// Weight gradients fill the gaps, or free memory.

#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/schedule.h"
#include "core/stage_footprint.h"

namespace mpt {

/// Seconds of one micro-batch on one virtual stage. Transfers are those that leave the stage.
struct StageSeconds {
  double forward_s = 0.0, input_gradient_s = 0.0, weight_gradient_s = 0.0;
  double activation_transfer_s = 0.0, gradient_transfer_s = 0.0;
};

struct ListTask {
  int ranks = 1, chunks = 1, micro_batches = 1;
  std::vector<int> rank_of_stage;
  std::vector<StageSeconds> seconds;       // by stage
  std::vector<StageFootprint> footprints;  // by stage
  std::vector<int64_t> limit_bytes;        // by rank, weights and states included
};

/// Preferences among ready actions. The best is found by trying all.
struct ListPolicy {
  bool alternates =
      false;  // a forward after an input gradient where both are ready; else always the gradient
  bool weight_before_forward = false;  // keeps memory low at the cost of a later start further down
  double patience = 0.0;  // idles up to this share of a weight gradient for an action known to be coming
};
std::span<const ListPolicy> list_policies();

struct TimedSchedule {
  Schedule schedule;
  double end_s = 0.0;  // of the last action, if only the task's durations and waits delay it
};

/// Nothing if a rank cannot hold one micro-batch of each of its stages, or if the last action would end after
/// `give_up_s`.
std::optional<TimedSchedule> list_schedule(const ListTask& task, const ListPolicy& policy,
                                           double give_up_s = std::numeric_limits<double>::infinity());

/// The catalog's entry point: unit durations and no limit on memory.
Schedule generate_list(int ranks, int chunks, int micro_batches);
/// Two stages per rank in a V; any other number round-robin.
std::vector<int> generated_placement(int ranks, int chunks);

}  // namespace mpt
