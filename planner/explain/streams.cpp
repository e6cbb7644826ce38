// SPDX-License-Identifier: Apache-2.0
#include "planner/explain/streams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "reports/table.h"

namespace mpt::planner {
StreamStep simulate_streams(const SearchProblem& problem, const Layout& layout, const StepProgram& program) {
  if (const int64_t tasks = stream_tasks(problem, layout, program); tasks > kMostTasks) {
    throw UserError(Problem{layout_name(layout), fmt::format("{} million tasks in a step", tasks / 1'000'000),
                            fmt::format("up to {} million to simulate each", kMostTasks / 1'000'000),
                            "take fewer micro-batches"});
  }
  ExpandedStep expanded = expand_step(problem, layout, program);
  StreamStep step;
  step.program = std::move(expanded.program);
  step.spans = simulate(step.program, contention_of(problem, layout));
  for (const auto& [first, last] : expanded.ends)
    step.timeline.spans.push_back({step.spans[size_t(first)].start_s, step.spans[size_t(last)].end_s});
  return step;
}

namespace {

// When something runs: spans in order, none of which touches another.
class Occupation {
 public:
  explicit Occupation(std::vector<Span> spans) {
    std::sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) { return a.start_s < b.start_s; });
    for (const Span& span : spans) {
      if (!spans_.empty() && span.start_s <= spans_.back().end_s) {
        spans_.back().end_s = std::max(spans_.back().end_s, span.end_s);
      } else if (span.seconds() > 0.0) {
        spans_.push_back(span);
      }
    }
  }
  double seconds() const {
    double sum = 0.0;
    for (const Span& span : spans_) sum += span.seconds();
    return sum;
  }
  double shared_s(const Occupation& other) const {
    double sum = 0.0;
    for (size_t a = 0, b = 0; a < spans_.size() && b < other.spans_.size();) {
      const Span &mine = spans_[a], &theirs = other.spans_[b];
      sum += std::max(0.0, std::min(mine.end_s, theirs.end_s) - std::max(mine.start_s, theirs.start_s));
      mine.end_s < theirs.end_s ? ++a : ++b;
    }
    return sum;
  }

 private:
  std::vector<Span> spans_;
};

// By CommunicationKind up to transfer, compute behind them. `ranks`: on which the task runs; what several of
// them wait for in their compute streams is a transfer that runs beside nothing.
size_t row_of(int stream, size_t ranks) {
  if (stream == int(Stream::compute)) return size_t(CommunicationKind::transfer) + (ranks == 1 ? 1 : 0);
  if (stream == int(Stream::reduction)) return size_t(CommunicationKind::sharding);
  return stream < kStreamCount ? size_t(CommunicationKind::transfer) : size_t(stream - kStreamCount);
}

}  // namespace

StreamShares stream_shares(const StreamStep& step) {
  StreamShares shares;
  constexpr size_t kCompute = size_t(CommunicationKind::transfer) + 1;
  using Rows = std::array<std::vector<Span>, kCompute + 1>;
  std::vector<Rows> ranks(size_t(step.program.ranks));
  for (size_t t = 0; t < step.spans.size(); ++t) {
    const std::span<const TaskLane> lanes = step.program.lanes(t);
    for (const TaskLane& lane : lanes)
      ranks[size_t(lane.rank)][row_of(lane.stream, lanes.size())].push_back(step.spans[t]);
  }
  const double share = 1.0 / double(ranks.size()), step_s = step_time_s(step.timeline);
  for (Rows& rows : ranks) {
    std::vector<Span> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    shares.idle_s += share * (step_s - Occupation(std::move(all)).seconds());
    const Occupation compute(std::move(rows[kCompute]));
    shares.compute_s += share * compute.seconds();
    for (size_t k = 0; k < kCompute; ++k) {
      const Occupation traffic(std::move(rows[k]));
      shares.traffic[k].busy_s += share * traffic.seconds();
      shares.traffic[k].beside_compute_s += share * traffic.shared_s(compute);
    }
  }
  return shares;
}

std::string describe_streams(const StreamStep& step, double whole_s) {
  const StreamShares shares = stream_shares(step);
  const double step_s = step_time_s(step.timeline), more = step_s / whole_s - 1.0;
  std::string text =
      fmt::format("Streams of a rank, simulated operator by operator: a step of {}", format_seconds(step_s));
  text += std::abs(more) < 5e-4
              ? ", like that of whole instructions\n"
              : fmt::format(", {:.1f} % {} than the {} of whole instructions\n", 100.0 * std::abs(more),
                            more > 0 ? "more" : "less", format_seconds(whole_s));
  reports::Table table(
      {{"stream", reports::Align::left}, {"runs"}, {"of the step"}, {"beside compute"}, {"alone"}});
  const auto row = [&](const char* name, double busy_s, double beside_s, bool traffic) {
    table.add_row({name, format_seconds(busy_s), format_percent(busy_s / step_s),
                   traffic ? format_seconds(beside_s) : "-",
                   traffic ? format_seconds(busy_s - beside_s) : "-"});
  };
  row("compute", shares.compute_s, 0.0, false);
  const char* const names[] = {"tensor-parallel", "context-parallel", "expert-parallel", "data-parallel",
                               "point to point"};
  for (size_t k = 0; k < shares.traffic.size(); ++k) {
    const StreamShare& traffic = shares.traffic[k];
    if (traffic.busy_s > 0.0) row(names[k], traffic.busy_s, traffic.beside_compute_s, true);
  }
  row("none of them", shares.idle_s, 0.0, false);
  return text + table.text();
}

std::vector<reports::InnerSpan> inner_spans(const StreamStep& step) {
  std::vector<reports::InnerSpan> spans;
  for (size_t t = 0; t < step.spans.size(); ++t) {
    const StreamTask& task = step.program.tasks[t];
    if (task.label < 0) continue;
    const int stream = step.program.lanes(t).front().stream;
    const int track = stream == int(Stream::compute) ? reports::kOperators : 1 + int(row_of(stream, 1));
    spans.push_back({task.instruction, track, step.program.labels[size_t(task.label)], step.spans[t].start_s,
                     step.spans[t].end_s});
  }
  return spans;
}

}  // namespace mpt::planner
