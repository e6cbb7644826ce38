// SPDX-License-Identifier: Apache-2.0
#pragma once

// The schedules that the catalog generates, each from ranks, chunks and micro-batches. The zero-bubble
// schedules share fill_weight_gradients(), which puts weight gradients into the gaps of a schedule.

#include <vector>

#include "core/schedule.h"

namespace mpt {

/// GPipe: every forward, then every backward, in micro-batch order. `chunks` must be 1.
/// Bubble with equal stages and free transfers: (p - 1) / (m + p - 1) of the step.
Schedule generate_gpipe(int ranks, int chunks, int micro_batches);

/// 1F1B: a warm-up of forwards, then one forward and one backward in turn, then the remaining backwards.
/// Same bubble as GPipe, but rank r holds at most ranks - r micro-batches. `chunks` must be 1.
Schedule generate_one_f_one_b(int ranks, int chunks, int micro_batches);

/// Interleaved 1F1B: each rank holds `chunks` stages, rank r the stages r, r + ranks, ... The bubble shrinks
/// by the number of chunks; the activations held grow. Any number of micro-batches works: the pattern is made
/// for whole groups, at best of `ranks` micro-batches, and the surplus is left out.
Schedule generate_interleaved(int ranks, int chunks, int micro_batches, int group);

/// Interleaved 1F1B with the backward split and fewer forwards first: the gradient reaches a rank after one
/// action per hop, not two. Rank r does a weight gradient r actions after its input gradient, so every rank
/// holds `chunks` x group.
Schedule generate_zb_interleaved(int ranks, int chunks, int micro_batches, int group);

/// ZB-H1: the order and memory of 1F1B, with weight gradients in its gaps (Qi et al. 2023, arXiv:2401.10241,
/// section 2.1).
Schedule generate_zb_h1(int ranks, int chunks, int micro_batches);

/// ZB-H2: enough forwards first that no rank waits between its first and its last action, for almost twice
/// the memory (the same, section 2.2).
Schedule generate_zb_h2(int ranks, int chunks, int micro_batches);

// V-shaped schedules: two chunks per rank, placed so that the last stage is on the first rank. A rank then
// holds one chunk for long and the other for a short time, and all ranks hold the same (Qi et al. 2024,
// arXiv:2405.15362, section 3: building blocks, repeated at a fixed distance). Memory relative to 1F1B: all
// of it (zb-v), about half (v-half), about a third (v-min); less memory means more bubble.

Schedule generate_zb_v(int ranks, int chunks, int micro_batches);
Schedule generate_v_half(int ranks, int chunks, int micro_batches);
Schedule generate_v_min(int ranks, int chunks, int micro_batches);

/// DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1) cut in half: each forward overlaps a backward of
/// the other chunk. The publication runs some input and weight gradients as one action. Here they are listed
/// one after the other, so that the gradient can be sent between them.
Schedule generate_dualpipe_v(int ranks, int chunks, int micro_batches);

/// `schedule` holds each rank's forwards and input gradients in order. This runs them in units where each
/// action lasts 1 and transfers last 0. A rank that has to wait does its oldest open weight gradient instead.
/// A rank also does one before a forward that would make it hold more than `most_held[rank]` micro-batches
/// (forward done, weight gradient not; over all its stages). The remaining weight gradients come last.
/// The limit must allow the order to run. A limit that the order keeps anyway, with each weight gradient
/// directly after its input gradient, always does.
void fill_weight_gradients(Schedule& schedule, const std::vector<int>& most_held);

}  // namespace mpt
