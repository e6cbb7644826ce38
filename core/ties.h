// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layouts that the model cannot tell apart. Among tied layouts the simpler one is preferred.

#include "core/layout.h"

namespace mpt {

/// Step times that differ by less are a tie. Measured on pairs of layouts that one source published of one
/// model, batch and machine (benchmarks/ties.py; reports/results/accuracy.md, Ties): of the 24 pairs
/// predicted less than 1 % apart 16 came out in the predicted order, in most pairs of 6 sources and the
/// fewest of 3 (p = 0.25), which is no better than chance. Of the 63 less than 2 % apart 47 did, in 13
/// sources against 4 (p = 0.02).
inline constexpr double kEqualTimes = 0.01;
/// Peaks of memory that differ by less are called the same: predictions of memory are off by more
/// (reports/results/accuracy.md).
inline constexpr double kEqualMemory = 0.005;

/// How many of tensor, context, pipeline, expert and data parallelism are used.
int kinds_of_parallelism(const Degrees& degrees, int64_t expert);

/// Whether `one` recomputes or offloads more than `other`, and does not do less of either.
bool does_more(const Layout& one, const Layout& other);

/// Whether the additional work gains nothing: `one` is neither faster, by the share `equal` or more, nor
/// smaller. Both have a step time, a peak and a layout.
template <class T>
bool is_dominated(const T& one, const T& other, double equal = kEqualTimes) {
  return other.step_time_s <= (1.0 + equal) * one.step_time_s &&
         double(other.peak_bytes) <= (1.0 + kEqualMemory) * double(one.peak_bytes) &&
         does_more(one.layout, other.layout);
}

}  // namespace mpt
