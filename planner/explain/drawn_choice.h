// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far the choice among the fastest layouts depends on errors of their predictions: each draw makes all of
// them slower or faster, as published runs were (planner/observe/correction.h), and asks which is the
// fastest.

#include <optional>
#include <string>
#include <vector>

#include "core/confidence.h"
#include "core/layout.h"
#include "planner/observe/next_run.h"
#include "planner/search/search.h"

namespace mpt::planner {

inline constexpr size_t kDraws = 1000;
/// Of the first layout, which is the recommended one; the places of those to measure are among all.
/// `scales`: as ObservedPriors::scales.
DrawnChoice draw_choice(const LogTimes& log_times, const Posterior& posterior,
                        std::span<const double> scales = {});

/// Over the layouts of `result` that take at most kNearFront longer than its first; nothing where there is no
/// other one, or where no published run tells the errors of the prices.
inline constexpr double kNearFront = 0.1;
/// So many layouts at most: the spreads were tested on sets of about as many.
inline constexpr size_t kMostDrawn = 6;
std::optional<DrawnChoice> draw_choice(const SearchResult& result, const SearchProblem& problem);

/// From this loss on, on average over the draws, two timings are worth their while.
inline constexpr double kUncertainOrder = 0.02;
/// What the first screen says of it, and which two layouts to time; empty where the order is certain enough.
std::string describe_order(const DrawnChoice& drawn, const std::vector<Layout>& ranking);
/// One sentence for people.
std::string describe_drawn(const DrawnChoice& drawn, const std::vector<Layout>& ranking);

}  // namespace mpt::planner
