// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bytes of a stage's weights, gradients and optimizer states, from the counts of its elements. A stage's
// footprint is made by add_state(), then by its activations, then by add_start(). StagePieces calls them.

#include "models/footprint.h"

namespace mpt::models {

/// Adds what stays for a whole step.
void add_state(const Layout& layout, const StateCounts& counts, StageFootprint& footprint);

/// Raises the weights of a finished footprint where more bytes are there before the first step.
void add_start(const Layout& layout, const StateCounts& counts, StageFootprint& footprint);

}  // namespace mpt::models
