// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is said of a choice, against what the choice cost: sets of layouts that one source measured of one
// model and batch with one software on one machine.

#include <string>
#include <vector>

#include "planner/explain/drawn_choice.h"

namespace mpt::planner {

/// One run of such a set.
struct MeasuredLayout {
  std::string set;   // the same for all runs of a set
  std::string name;  // the same for runs of one layout
  std::string source;
  DrawnLayout drawn;
  double predicted_s = 0.0, measured_s = 0.0;
};

/// The layout predicted fastest is the choice.
struct CheckedChoice {
  std::string source;
  double regret = 0.0;  // by how much longer it took than the layout measured fastest, as a share
  DrawnChoice drawn;    // what is said of it
};

/// Of every set of three or more layouts. Runs of one layout are one, with the median of their times.
std::vector<CheckedChoice> check_choices(const std::vector<MeasuredLayout>& runs, const PriceErrors& errors);

}  // namespace mpt::planner
