// SPDX-License-Identifier: Apache-2.0
#pragma once

// A step simulated operator by operator, for its trace.

#include <optional>
#include <vector>

#include "planner/explain/stream_expansion.h"
#include "reports/trace.h"

namespace mpt::planner {

struct StreamStep {
  StreamProgram program;
  std::vector<Span> spans;  // by task
  Timeline timeline;        // by instruction of the step's program
};

/// Of `program`, which is that of `layout`. Nothing where it would be more than kMostTasks.
std::optional<StreamStep> simulate_streams(const SearchProblem& problem, const Layout& layout,
                                           const StepProgram& program);
inline constexpr int64_t kMostTasks = 20'000'000;

/// Operators of the first micro-batch and all collectives that have a name.
std::vector<reports::InnerSpan> inner_spans(const StreamStep& step);

}  // namespace mpt::planner
