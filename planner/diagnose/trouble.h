// SPDX-License-Identifier: Apache-2.0
#pragma once

// Trouble: problems in a log that no step time shows. Memory that ran out, collectives that timed out, steps
// that were not finite or were skipped.

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

}  // namespace mpt::planner
