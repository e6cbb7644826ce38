// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which framework bounds a search, and what it refuses before anything is searched.

#include <memory>
#include <string>

#include "planner/search/problem.h"

namespace mpt::planner {

/// Whether mpt-run is to run it: it alone runs on CPUs.
bool is_for_this_runtime(const ClusterSpec& cluster, const Execution& execution);

/// The framework that is to run plans of `problem`; null where its abilities are not known. On CPU ranks it
/// is without what gains nothing there, unless the bounds ask for it.
std::shared_ptr<const frameworks::Framework> bounding_framework(const SearchProblem& problem);

/// Throws UserError if the framework has not the model's features, its precision or the overlaps, which
/// `overlaps` names.
void check_framework(const SearchProblem& problem, const std::string& overlaps);

}  // namespace mpt::planner
