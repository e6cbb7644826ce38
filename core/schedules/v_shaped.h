// SPDX-License-Identifier: Apache-2.0
#pragma once

// V-shaped schedules: two chunks per rank, placed so that the last stage lies on the first rank. A rank then
// holds one chunk for long and the other for a short time, and all ranks hold the same (Qi et al. 2024,
// arXiv:2405.15362, section 3: building blocks, repeated at a fixed distance). Memory against that of 1F1B:
// all of it (zb-v), about half (v-half), about a third (v-min); the smaller, the more bubble.

#include "core/schedule.h"

namespace mpt {

Schedule generate_zb_v(int ranks, int chunks, int micro_batches);
Schedule generate_v_half(int ranks, int chunks, int micro_batches);
Schedule generate_v_min(int ranks, int chunks, int micro_batches);

/// DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1) cut in half: each forward beside a backward of the
/// other chunk. Where the publication runs input and weight gradient as one, they are listed one behind the
/// other, so that the gradient can leave between them.
Schedule generate_dualpipe_v(int ranks, int chunks, int micro_batches);

}  // namespace mpt
