// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule.h"

namespace mpt {

/// 1F1B: a warm-up of forwards, then one forward and one backward in turn, then the remaining backwards.
/// Same bubble as GPipe, but rank r holds at most ranks - r micro-batches. `chunks` must be 1.
Schedule generate_one_f_one_b(int ranks, int chunks, int micro_batches);

}  // namespace mpt
