// SPDX-License-Identifier: Apache-2.0
#pragma once

// The space of layouts: every tensor x pipeline x data split of the devices, micro-batch, chunks, recompute
// and schedule. Combinations that differ in name alone stand once: one pipeline rank has one schedule.

#include <map>
#include <string>
#include <vector>

#include "planner/search/problem.h"

namespace mpt::planner {

struct Space {
  std::vector<Layout> layouts;                  // those that divide model and batch
  std::map<std::string, int64_t> not_dividing;  // rule that fails -> how often it ruled something out
};

Space enumerate_space(const SearchProblem& problem);

std::vector<int64_t> divisors(int64_t value);

}  // namespace mpt::planner
