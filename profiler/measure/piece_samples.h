// SPDX-License-Identifier: Apache-2.0
#pragma once

// Samples of the model's pieces, and the choice of those to take again.

#include <functional>
#include <vector>

#include "profiler/hardware/profile.h"
#include "profiler/measure/stopping_rule.h"

namespace mpt::profiler {

/// Seconds of every phase, by rounds.
struct PhaseSamples {
  std::vector<double> forward, input, weight, both;

  Measurement of(Phase phase) const;
};

struct PieceCase {
  PieceTiming size;  // without its phase and times
  PhaseSamples samples;
};

/// Timings of every phase of every case.
std::vector<PieceTiming> timings_of(const std::vector<PieceCase>& cases);

/// Takes doubtful cases again, at most kMostRepeats times each. The faster samples stay: other load on a
/// machine can only add time.
void repeat_doubtful(std::vector<PieceCase>& cases,
                     const std::function<PhaseSamples(const PieceTiming& size)>& measure);

}  // namespace mpt::profiler
