// SPDX-License-Identifier: Apache-2.0
#pragma once

// A layout for tests of what software keeps: 32 layers in two pipeline stages, in bf16.

#include "core/layout.h"

namespace mpt::models {

inline Layout two_stages(const Execution& execution) {
  Layout layout;
  layout.pipeline = 2;
  layout.precision = Precision::bf16;
  layout.layers_per_stage = {16, 16};
  layout.execution = execution;
  return layout;
}

}  // namespace mpt::models
