// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule.h"

namespace mpt {

/// Interleaved 1F1B: each rank holds `chunks` stages, rank r the stages r, r + ranks, ...
/// The bubble shrinks by the number of chunks; the activations held grow. Any number of micro-batches works:
/// the pattern is made for whole groups of `ranks` micro-batches and the surplus is left out.
Schedule generate_interleaved(int ranks, int chunks, int micro_batches);

}  // namespace mpt
