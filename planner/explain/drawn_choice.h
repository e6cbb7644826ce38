// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far the choice among the fastest layouts depends on errors of their predictions. Each
// draw makes all of them slower or faster, as published runs were
// (planner/observe/correction.h), and determines the fastest.

#include <optional>
#include <string>
#include <vector>

#include "core/confidence.h"
#include "core/layout.h"
#include "planner/observe/next_run.h"
#include "planner/search/search_result.h"

namespace mpt::planner {

inline constexpr size_t kDraws = 1000;
/// For the first layout, which is the recommended one. The layouts to measure are given as places among all.
/// `scales`: as ObservedPriors::scales.
DrawnChoice draw_choice(const LogTimes& log_times, const Posterior& posterior,
                        std::span<const double> scales = {});

/// Over the layouts of `result` that take at most kNearFront longer than the first. Nothing if there is no
/// other one, or if no published run shows the errors of the prices.
inline constexpr double kNearFront = 0.1;
/// Limit on the number of layouts: the spreads were tested on sets of about this size.
inline constexpr size_t kMostDrawn = 6;
std::optional<DrawnChoice> draw_choice(const SearchResult& result, const SearchProblem& problem);

/// From this average loss over the draws on, two timings are worth their cost.
inline constexpr double kUncertainOrder = 0.02;
/// The text for the first screen, with the two layouts to time; empty if the order is certain enough.
std::string describe_order(const DrawnChoice& drawn, const std::vector<Layout>& ranking);
/// One sentence for people.
std::string describe_drawn(const DrawnChoice& drawn, const std::vector<Layout>& ranking);

}  // namespace mpt::planner
