// SPDX-License-Identifier: Apache-2.0
#pragma once

// A step's instructions taken apart into operators and collectives, each in its stream. What a search adds up
// in closed form runs here as it would: a layer's weights are gathered while the one before it computes, its
// gradients reduced while the next one does.

#include <utility>
#include <vector>

#include "planner/search/evaluate.h"
#include "planner/simulate/stream_simulation.h"

namespace mpt::planner {

struct ExpandedStep {
  StreamProgram program;
  std::vector<std::pair<int32_t, int32_t>> ends;  // first and last task of each instruction
};

/// Of `program`, which is that of `layout`.
ExpandedStep expand_step(const SearchProblem& problem, const Layout& layout, const StepProgram& program);
/// How many tasks that has, at most.
int64_t stream_tasks(const SearchProblem& problem, const Layout& layout, const StepProgram& program);

}  // namespace mpt::planner
