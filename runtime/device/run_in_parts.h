// SPDX-License-Identifier: Apache-2.0
#pragma once

// Composite operators as sequences of simpler ones, for devices without a fused implementation.

#include "runtime/device/device.h"

namespace mpt::runtime {

inline void run_in_parts(Device& device, DataType type, const LinearBackward& o) {
  device.run(type, LinearBackwardInput{.shape = o.shape, .dy = o.dy, .w = o.w, .dx = o.dx});
  device.run(type,
             LinearBackwardWeight{.shape = o.shape, .dy = o.dy, .x = o.x, .dw = o.dw, .dbias = o.dbias});
}
inline void run_in_parts(Device& device, DataType type, const LinearActivationForward& o) {
  device.run(type, LinearForward{.shape = o.shape, .x = o.x, .w = o.w, .bias = o.bias, .y = o.up});
  device.run(type, ActivationForward{.shape = o.activation, .x = o.up, .y = o.y});
}
inline void run_in_parts(Device& device, DataType type, const LinearActivationBackward& o) {
  device.run(type, LinearBackwardInput{.shape = o.shape, .dy = o.dy, .w = o.w, .dx = o.room});
  device.run(type, ActivationBackward{.shape = o.activation, .dy = o.room, .x = o.up, .dx = o.dup});
}
inline void run_in_parts(Device& device, DataType type, const LossOfAll& o) {
  const int64_t tokens = o.shape.tokens, unit = size_of(state_type_of(type));
  const Buffer maximum(device, tokens * unit), sums(device, 2 * tokens * unit);
  device.run(type, LossMaximum{.shape = o.shape, .logits = o.logits, .maximum = maximum.data()});
  device.run(type, LossExponentials{.shape = o.shape,
                                    .targets = o.targets,
                                    .maximum = maximum.data(),
                                    .logits = o.logits,
                                    .sums = sums.data()});
  device.run(type, LossGradient{.shape = o.shape,
                                .targets = o.targets,
                                .sums = sums.data(),
                                .scale = o.scale,
                                .logits = o.logits,
                                .loss = o.loss});
}

}  // namespace mpt::runtime
