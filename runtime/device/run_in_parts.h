// SPDX-License-Identifier: Apache-2.0
#pragma once

// Composite operators as sequences of simpler ones, for devices without a fused implementation.

#include "runtime/device/device.h"

namespace mpt::runtime {

inline void run_in_parts(Device& device, DataType type, const LinearBackward& o) {
  device.run(type, LinearBackwardInput{o.shape, o.dy, o.w, o.dx});
  device.run(type, LinearBackwardWeight{o.shape, o.dy, o.x, o.dw, o.dbias});
}
inline void run_in_parts(Device& device, DataType type, const LinearActivationForward& o) {
  device.run(type, LinearForward{o.shape, o.x, o.w, o.bias, o.up});
  device.run(type, ActivationForward{o.activation, o.up, o.y});
}
inline void run_in_parts(Device& device, DataType type, const LinearActivationBackward& o) {
  device.run(type, LinearBackwardInput{o.shape, o.dy, o.w, o.room});
  device.run(type, ActivationBackward{o.activation, o.room, o.up, o.dup});
}
inline void run_in_parts(Device& device, DataType type, const LossOfAll& o) {
  const int64_t tokens = o.shape.tokens, unit = size_of(state_type_of(type));
  const Buffer maximum(device, tokens * unit), sums(device, 2 * tokens * unit);
  device.run(type, LossMaximum{o.shape, o.logits, maximum.data()});
  device.run(type, LossExponentials{o.shape, o.targets, maximum.data(), o.logits, sums.data()});
  device.run(type, LossGradient{o.shape, o.targets, sums.data(), o.scale, o.logits, o.loss});
}

}  // namespace mpt::runtime
