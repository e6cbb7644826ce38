// SPDX-License-Identifier: Apache-2.0
#pragma once

// A step simulated operator by operator, for people: what each stream does, alone and beside compute.

#include <array>
#include <string>
#include <vector>

#include "planner/explain/stream_expansion.h"
#include "reports/trace.h"

namespace mpt::planner {

struct StreamStep {
  StreamProgram program;
  std::vector<Span> spans;  // by task
  Timeline timeline;        // by instruction of the step's program
};

/// Of `program`, which is that of `layout`. Throws UserError where it would be more than kMostTasks.
StreamStep simulate_streams(const SearchProblem& problem, const Layout& layout, const StepProgram& program);
inline constexpr int64_t kMostTasks = 20'000'000;

/// On the ranks' average: seconds in a step in which a stream runs, and those of them beside compute.
struct StreamShare {
  double busy_s = 0.0, beside_compute_s = 0.0;
};
/// By CommunicationKind up to `transfer`, of which `sharding` is all data-parallel traffic; `idle_s`: no
/// stream of the rank runs.
struct StreamShares {
  std::array<StreamShare, size_t(CommunicationKind::transfer) + 1> traffic{};
  double compute_s = 0.0, idle_s = 0.0;
};
StreamShares stream_shares(const StreamStep& step);

/// A table of the streams, and what the step takes against `whole_s`, that of whole instructions.
std::string describe_streams(const StreamStep& step, double whole_s);

/// Operators of the first micro-batch and all collectives that have a name.
std::vector<reports::InnerSpan> inner_spans(const StreamStep& step);

}  // namespace mpt::planner
