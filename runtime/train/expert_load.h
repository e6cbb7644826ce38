// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the load of spread experts means for a rank's memory: how full its layers were together.

#include <vector>

#include "core/step_program.h"

namespace mpt::runtime {

/// Micro-batches of which each virtual stage holds activations at most at a time.
std::vector<size_t> in_flight_of_stages(const StepProgram& program);

/// Copies that arrived at a layer's experts over an even share, one entry per forward pass, in order.
using LayerLoads = std::vector<double>;

/// One load for a rank's layers: of the fullest layer in any pass where layers are recomputed `one_by_one`;
/// else the mean of a stage's layers over as many consecutive passes as it holds, where that is highest, and
/// of the stages their mean by layers. 0 where no layer has spread experts.
struct StageLoads {
  std::vector<LayerLoads> layers;
  size_t in_flight = 1;
};
double expert_load(const std::vector<StageLoads>& stages, bool one_by_one);

}  // namespace mpt::runtime
