// SPDX-License-Identifier: Apache-2.0
#pragma once

// Features of a prediction that indicate its error. They make corrections differ between layouts.

#include <span>
#include <string>
#include <vector>

#include "planner/observe/correction.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

/// `words`: text for layouts with much of the feature; null for features that all layouts have.
struct Feature {
  const char* name;
  const char* words;
};

/// Features of step times: shares of work along the critical path, the bubble's, and parts of the layout.
std::span<const Feature> time_features();
std::vector<double> time_features_of(const SearchProblem& problem, const Candidate& candidate);
/// Features of memory: shares of the fullest rank's peak, and parts of the layout.
std::span<const Feature> memory_features();
std::vector<double> memory_features_of(const SearchProblem& problem, const Candidate& candidate);

/// Priors from published runs, before any run of the user: planner/observe/prior.json, built in, which
/// `./scripts/bench choice` writes.
struct ObservedPriors {
  CorrectionPrior time, memory;
  // Errors of each published set divided by the prior's deviation. Clusters differ: 0.2 to 3.
  std::vector<double> scales;
};
ObservedPriors published_priors();
/// Priors from the text of such a file.
ObservedPriors priors_from_text(const std::string& text, const std::string& file);

}  // namespace mpt::planner
