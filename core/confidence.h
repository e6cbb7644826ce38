// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is: what published runs took and used beside their predictions says it
// (planner/explain/confidence.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"

namespace mpt {

/// Of one layout's prediction. What no run tells is absent.
struct Confidence {
  std::optional<double> least_s, most_s;  // eight in ten steps take between them
  std::optional<double> fits;             // probability that it does not run out of memory
  std::vector<std::string> new_in =
      {};  // what of its kind no published run of its software has: ranges are wide

  bool operator==(const Confidence&) const = default;

  static void describe(auto& v) {
    using T = Confidence;
    v.field("least_s", &T::least_s, "a step takes less than this in one case of ten",
            optional_field(between(0, 1e9)));
    v.field("most_s", &T::most_s, "a step takes more than this in one case of ten",
            optional_field(between(0, 1e9)));
    v.field("fits", &T::fits, "probability that it does not run out of memory",
            optional_field(between(0, 1)));
    v.field("new_in", &T::new_in,
            "what no published run with this software has, or the software itself: the range is wide",
            rare_field());
  }
};

/// How far the choice among the fastest layouts depends on errors of the prices: their
/// predictions are drawn anew, with the errors that published runs show.
struct DrawnChoice {
  int64_t draws = 0;
  int64_t layouts = 0;       // among which each draw chooses
  double other_wins = 0.0;   // share of the draws in which another layout is faster than the recommended one
  double regret_mean = 0.0;  // by how much longer the recommended one takes than the fastest of a draw
  double regret_95 = 0.0;    // at most so much in 95 of 100 draws
  std::vector<int64_t> measure;  // places in the ranking, from 1: measuring these two decides most draws

  bool operator==(const DrawnChoice&) const = default;

  static void describe(auto& v) {
    using T = DrawnChoice;
    v.field("draws", &T::draws, "how often errors were drawn", between(0, 1e9));
    v.field("layouts", &T::layouts, "layouts among which each draw chooses", between(0, 1e6));
    v.field("other_wins", &T::other_wins, "share of draws in which another layout is faster", between(0, 1));
    v.field("regret_mean", &T::regret_mean,
            "share by which the recommended layout takes longer than the fastest of a draw, on average",
            between(0, 1e6));
    v.field("regret_95", &T::regret_95, "the same, at most, in 95 of 100 draws", between(0, 1e6));
    v.field("measure", &T::measure, "places in the ranking of two layouts to measure, from 1",
            optional_field(between(1, 1e6)));
  }
};

}  // namespace mpt
