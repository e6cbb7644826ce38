// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/schedule.h"

namespace mpt {

/// ZB-H1: 1F1B's order and memory, weight gradients in its gaps (Qi et al. 2023, arXiv:2401.10241, section
/// 2.1).
Schedule generate_zb_h1(int ranks, int chunks, int micro_batches);

/// ZB-H2: enough forwards first that no rank waits between its first and its last action, for almost twice
/// the memory (the same, section 2.2).
Schedule generate_zb_h2(int ranks, int chunks, int micro_batches);

}  // namespace mpt
