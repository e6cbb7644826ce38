// SPDX-License-Identifier: Apache-2.0
#pragma once

// The options that limited a search, as words: what a plan keeps of them, and which of them rule a layout
// out.

#include <map>
#include <string>
#include <vector>

#include "core/layout.h"
#include "planner/search/problem.h"

namespace mpt::planner {

/// By the option's name without dashes, "pp" -> "1,2"; options that leave everything open are absent.
std::map<std::string, std::string> restrictions_of(const SpaceBounds& bounds);

/// Those that `layout` breaks, as they are typed: "--pp 1". What a layout cannot show (a context method on
/// one context rank) breaks nothing.
std::vector<std::string> broken_restrictions(const std::map<std::string, std::string>& restrictions,
                                             const Layout& layout);

/// "1,2" apart.
std::vector<std::string> values_of(const std::string& restriction);

}  // namespace mpt::planner
