// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/streams.h"

#include <utility>

namespace mpt::planner {

std::optional<StreamStep> simulate_streams(const SearchProblem& problem, const Layout& layout,
                                           const StepProgram& program) {
  if (stream_tasks(problem, layout, program) > kMostTasks) return std::nullopt;
  ExpandedStep expanded = expand_step(problem, layout, program);
  StreamStep step;
  step.program = std::move(expanded.program);
  step.spans = simulate(step.program, contention_of(problem, layout));
  for (const auto& [first, last] : expanded.ends)
    step.timeline.spans.push_back({step.spans[size_t(first)].start_s, step.spans[size_t(last)].end_s});
  return step;
}

namespace {

// The trace's track of a collective: by CommunicationKind up to transfer.
int track_of(int stream) {
  if (stream == int(Stream::compute)) return reports::kOperators;
  if (stream == int(Stream::reduction)) return 1 + int(CommunicationKind::sharding);
  return 1 + (stream < kStreamCount ? int(CommunicationKind::transfer) : stream - kStreamCount);
}

}  // namespace

std::vector<reports::InnerSpan> inner_spans(const StreamStep& step) {
  std::vector<reports::InnerSpan> spans;
  for (size_t t = 0; t < step.spans.size(); ++t) {
    const StreamTask& task = step.program.tasks[t];
    if (task.label < 0) continue;
    spans.push_back({task.instruction, track_of(step.program.lanes(t).front().stream),
                     step.program.labels[size_t(task.label)], step.spans[t].start_s, step.spans[t].end_s});
  }
  return spans;
}

}  // namespace mpt::planner
