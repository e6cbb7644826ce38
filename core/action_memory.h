// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory that an action uses while it runs, keeps afterwards and frees. Every peak follows from it.

#include <algorithm>
#include <cstdint>

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

inline ActionMemory memory_of(ActionKind kind, const StageFootprint& footprint) {
  switch (kind) {
    case ActionKind::forward:
      return {footprint.saved_bytes, 0, footprint.forward_workspace_bytes};
    case ActionKind::backward:
      return {0, footprint.saved_bytes, footprint.backward_workspace_bytes};
    case ActionKind::input_gradient: {
      // The inputs of the weight gradient replace the saved activations: most of them are the same memory.
      const int64_t more = footprint.saved_for_weight_bytes - footprint.saved_bytes;
      return {std::max<int64_t>(more, 0), std::max<int64_t>(-more, 0),
              footprint.input_gradient_workspace_bytes};
    }
    case ActionKind::weight_gradient:
      return {0, footprint.saved_for_weight_bytes, footprint.weight_gradient_workspace_bytes};
  }
  return {};
}

}  // namespace mpt
