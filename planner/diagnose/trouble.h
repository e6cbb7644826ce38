// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trouble: problems in a log that no step time shows. Memory that ran out, collectives that timed out, steps
// that were not finite or were skipped, and signs of why a run is slow: lines by a table of their forms
// (trouble.rows.json).

#include <cstdint>
#include <string>
#include <vector>

#include "base/fields.h"
#include "core/plan.h"
#include "frameworks/log.h"

namespace mpt::planner {

struct Trouble {
#include "generated/Trouble.inc"
};

/// Out-of-memory errors and time-outs, with the ranks that report them.
std::vector<Trouble> find_troubles(const frameworks::LogFile& file, const Plan& plan);

/// Steps of one kind. `first` is 0 if steps have no numbers.
struct BadSteps {
  int64_t count = 0, first = 0;

  void add(int64_t more, int64_t step) {
    if (count == 0 && more > 0) first = step;
    count += more;
  }
};
/// Nothing if there are none.
std::vector<Trouble> bad_steps(const BadSteps& not_finite, const BadSteps& skipped, Precision precision);

/// What lines of `file` report by the table, with the first line of each row. `not_finite`: whether a step
/// had a loss or gradients that are not finite.
std::vector<Trouble> find_signs(const frameworks::LogFile& file, const Plan& plan, bool not_finite);

/// A speed per GPU that falls as nodes are added, from lines such as "4 nodes: 6100 tokens/s/GPU" and
/// "nnodes=4 150 TFLOP/s". A rate without "GPU" is of all nodes, except FLOP/s. Nothing if there are no such
/// lines, or if the speed falls by less than a tenth.
std::vector<Trouble> falling_speed(const frameworks::LogFile& file);

/// Why a run that uses `bytes` on its fullest GPU is not the plan, and the change of the plan's layout that
/// would explain it. Empty if published runs have similar errors. `at_least`: it ran out of memory there.
std::string doubt_by_memory(const Plan& plan, double bytes, bool at_least);

}  // namespace mpt::planner
