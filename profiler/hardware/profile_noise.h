// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which timings of a profile are too noisy to plan with. Other programs' work during the measurement shows as
// a large spread, or as a time that does not fit the time of half the micro-batch.

#include <string>
#include <vector>

#include "core/plan.h"
#include "profiler/hardware/profile.h"

namespace mpt::profiler {

/// Twice the micro-batch takes about twice as long: 1.5 to 2.7 times in measurements without other load.
inline constexpr double kLeastGrowth = 0.8, kMostGrowth = 3.0;

/// Indices of timings of layers and heads that are noisy, or do not fit those of half the micro-batch.
/// Embeddings take a thousandth of a layer's time and are left out.
std::vector<size_t> doubtful_pieces(const std::vector<PieceTiming>& pieces);

struct ProfileNoise {
  size_t timings = 0;   // of layers, heads and large messages
  size_t doubtful = 0;  // of these
  double worst_spread = 0.0;
  std::string worst;  // such as "layer forward, micro-batch 2"
};

/// Noise at one sequence length, or at all lengths if the profile has no timings of that one.
ProfileNoise noise_of(const Profile& profile, int64_t sequence);

/// "166 of 240 timings vary by more than 20% ..."; empty if the profile is good to plan with.
std::string noise_text(const ProfileNoise& noise);

/// The note about `file` for commands that plan with it, with the command that measures again; empty if
/// quiet.
std::string noise_note(const Profile& profile, const std::string& file, int64_t sequence);

}  // namespace mpt::profiler
