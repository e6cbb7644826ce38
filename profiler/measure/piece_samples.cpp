// SPDX-License-Identifier: Apache-2.0
#include "profiler/measure/piece_samples.h"

#include <set>

#include "profiler/hardware/profile_noise.h"

namespace mpt::profiler {
namespace {

double whole_pass_s(const PhaseSamples& samples) {
  return samples.of(Phase::forward).seconds + samples.of(Phase::backward).seconds;
}

}  // namespace

Measurement PhaseSamples::of(Phase phase) const {
  const std::vector<double>* const samples[] = {&forward, &both, &input, &weight};  // by Phase
  return summarize(*samples[size_t(phase)]);
}

std::vector<PieceTiming> timings_of(const std::vector<PieceCase>& cases) {
  std::vector<PieceTiming> timings;
  for (const PieceCase& c : cases)
    for (const auto& [phase, name] : EnumNames<Phase>::table()) {
      const Measurement m = c.samples.of(phase);
      PieceTiming& timing = timings.emplace_back(c.size);
      timing.phase = phase;
      timing.seconds = m.seconds;
      timing.spread = m.spread;
    }
  return timings;
}

void repeat_doubtful(std::vector<PieceCase>& cases,
                     const std::function<PhaseSamples(const PieceTiming& size)>& measure) {
  const size_t phases = EnumNames<Phase>::table().size();
  for (int repeat = 0; repeat < kMostRepeats; ++repeat) {
    std::set<size_t> doubtful;
    for (const size_t timing : doubtful_pieces(timings_of(cases))) doubtful.insert(timing / phases);
    for (const size_t c : doubtful) {
      PhaseSamples again = measure(cases[c].size);
      if (whole_pass_s(again) < whole_pass_s(cases[c].samples)) cases[c].samples = std::move(again);
    }
  }
}

}  // namespace mpt::profiler
