// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule.h"

namespace mpt {

/// GPipe: every forward, then every backward, in micro-batch order. `chunks` must be 1.
/// Bubble with equal stages and free transfers: (p - 1) / (m + p - 1) of the step.
Schedule generate_gpipe(int ranks, int chunks, int micro_batches);

}  // namespace mpt
