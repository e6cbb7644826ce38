// SPDX-License-Identifier: Apache-2.0
#pragma once

// A step's instructions taken apart into operators and collectives, each in its stream. What a search adds up
// in closed form runs here as it would: a layer's weights are gathered while the one before it computes, its
// gradients reduced while the next one does.

#include <vector>

#include "planner/search/evaluate.h"
#include "tests/planner/stream_simulation.h"

namespace mpt::planner {

struct StreamStep {
  StreamProgram program;
  std::vector<Span> spans;  // by task
  Timeline timeline;        // by instruction of the step's program
};

/// Of `program`, which is that of `layout`.
StreamStep simulate_streams(const SearchProblem& problem, const Layout& layout, const StepProgram& program);

}  // namespace mpt::planner
