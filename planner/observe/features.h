// SPDX-License-Identifier: Apache-2.0
#pragma once

// What of a prediction tells how far off it is: by these features corrections differ between layouts.

#include <span>
#include <string>
#include <vector>

#include "planner/observe/correction.h"
#include "planner/search/search.h"

namespace mpt::planner {

/// `words`: layouts with much of it, for people; null for what all have.
struct Feature {
  const char* name;
  const char* words;
};

/// Of step times: shares of work along the critical path, the bubble's share, and parts of the layout.
std::span<const Feature> time_features();
std::vector<double> time_features_of(const SearchProblem& problem, const Candidate& candidate);
/// Of memory: shares of the fullest rank's peak, and parts of the layout.
std::span<const Feature> memory_features();
std::vector<double> memory_features_of(const SearchProblem& problem, const Candidate& candidate);

/// What published runs say before any run of the user's own: planner/observe/prior.json, built in, which
/// `./scripts/bench choice` writes.
struct ObservedPriors {
  CorrectionPrior time, memory;
  // Errors of each published set divided by the prior's own. Clusters differ: 0.2 to 3.
  std::vector<double> scales;
};
ObservedPriors published_priors();
/// From the text of such a file.
ObservedPriors priors_from_text(const std::string& text, const std::string& file);

}  // namespace mpt::planner
