// SPDX-License-Identifier: Apache-2.0
#pragma once

// How far the choice among the fastest layouts depends on errors of the prices. Each draw makes the work of
// each class slower or faster by a factor, and each part of a layout by another one, and asks which layout is
// the fastest then. docs/search.md says where the spreads of the factors come from.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/confidence.h"
#include "core/layout.h"
#include "planner/explain/work_classes.h"

namespace mpt::planner {

/// What two layouts can differ in beside their shares of work: degrees, pipeline (micro-batch and schedule),
/// and state (recompute, ZeRO and offload).
enum class LayoutPart : uint8_t { degrees, pipeline, state };
inline constexpr size_t kLayoutParts = 3;

/// A layout by those parts. Layouts that are near each other are off together: errors grow with the number of
/// doublings between them.
struct LayoutTraits {
  /// Logarithms to base 2 of tensor, context, pipeline and expert degree, and micro-batch.
  std::array<double, 5> doublings{};
  static constexpr LayoutPart kPartOfDoublings[5] = {LayoutPart::degrees, LayoutPart::degrees,
                                                     LayoutPart::degrees, LayoutPart::degrees,
                                                     LayoutPart::pipeline};
  /// Sequence parallelism and method of context parallelism, schedule, recompute, ZeRO stage, and offload.
  std::array<int64_t, 5> kinds{};
  static constexpr LayoutPart kPartOfKinds[5] = {LayoutPart::degrees, LayoutPart::pipeline, LayoutPart::state,
                                                 LayoutPart::state, LayoutPart::state};
};
LayoutTraits traits_of(const Layout& layout);

/// Standard deviations of the logarithms of those factors: planner/explain/price_errors.json, built in,
/// which `./scripts/bench accuracy` writes.
struct PriceErrors {
  WorkSeconds work{};                        // by WorkClass
  std::array<double, kLayoutParts> parts{};  // by LayoutPart
};
PriceErrors published_price_errors();

/// One of the layouts among which a draw chooses.
struct DrawnLayout {
  Layout layout;
  WorkSeconds work{};  // along its critical path
};
DrawnLayout drawn_layout(const SearchProblem& problem, const Candidate& candidate);

inline constexpr int64_t kDraws = 1000;
/// Draws over `layouts`, of which the first is the recommended one; the places of those to measure are among
/// them. The same layouts give the same result.
DrawnChoice draw_choice(std::span<const DrawnLayout> layouts, const PriceErrors& errors,
                        int64_t draws = kDraws);

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
