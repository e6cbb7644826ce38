// SPDX-License-Identifier: Apache-2.0
#pragma once

// The table of mpt-plan compare: one plan a row, for a terminal and as CSV.

#include <optional>
#include <string>
#include <vector>

#include "planner/api.h"
#include "planner/commands/command_line.h"

namespace mpt::planner {

/// A plan of a comparison, or the reason why there is none.
struct Compared {
  std::vector<std::string> at;  // its value on each axis
  double price = 0.0;           // of a GPU-hour; 0: not given
  std::optional<Plan> plan;     // nothing: no layout fits
  std::string why;
};

struct Comparison {
  std::vector<std::string> axes;
  std::vector<Compared> rows;
  CostOptions cost;        // its price is that of the rows
  bool are_files = false;  // rows are plans of files, and not of axes
};

/// The job, the table within the columns of the terminal, the assumptions
/// of its days, and notes on rows.
std::string describe(const Comparison& comparison);
std::string csv_of(const Comparison& comparison);

}  // namespace mpt::planner
