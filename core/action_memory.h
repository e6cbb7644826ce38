// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that an action uses while it runs, keeps afterwards and frees. Every peak follows from it.

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/schedule.h"
#include "core/stage_footprint.h"

namespace mpt {

struct ActionMemory {
  int64_t acquire_bytes = 0;
  int64_t release_bytes = 0;
  int64_t workspace_bytes = 0;

  /// Bytes that the action needs while it runs, in addition to those held before.
  int64_t transient_bytes() const { return acquire_bytes + workspace_bytes; }
};

/// Follows actions in the order of a step.
class FirstGradients {
 public:
  /// Whether this action makes the first gradients of its stage's weights.
  bool are_made(ActionKind kind, int stage) {
    if (kind != ActionKind::backward && kind != ActionKind::weight_gradient) return false;
    if (size_t(stage) >= made_.size()) made_.resize(size_t(stage) + 1, false);
    if (made_[size_t(stage)]) return false;
    return made_[size_t(stage)] = true;
  }

 private:
  std::vector<bool> made_;  // by stage
};

/// `first`: the action makes the first gradients of its stage.
inline ActionMemory memory_of(ActionKind kind, const StageFootprint& footprint, bool first) {
  const int64_t late = first ? footprint.late_gradient_bytes : 0;
  switch (kind) {
    case ActionKind::forward:
      return {footprint.saved_bytes, 0, footprint.forward_workspace_bytes};
    case ActionKind::backward:
      return {
          late, footprint.saved_bytes,
          late > 0 ? footprint.first_backward_workspace_bytes - late : footprint.backward_workspace_bytes};
    case ActionKind::input_gradient: {
      // The inputs of the weight gradient replace the saved activations: most of them are the same memory.
      const int64_t more = footprint.saved_for_weight_bytes - footprint.saved_bytes;
      return {std::max<int64_t>(more, 0), std::max<int64_t>(-more, 0),
              footprint.input_gradient_workspace_bytes};
    }
    case ActionKind::weight_gradient:
      return {late, footprint.saved_for_weight_bytes, footprint.weight_gradient_workspace_bytes};
  }
  return {};
}

}  // namespace mpt
