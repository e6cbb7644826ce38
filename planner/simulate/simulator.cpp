// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/simulator.h"

#include <queue>

#include "base/error.h"
#include "core/plan.h"

namespace mpt::planner {
double Contention::rate(int64_t active_lanes) const {
  const int64_t ranks = active_lanes * ranks_per_lane;
  if (rate_by_active_ranks.empty() || ranks < 1) return 1.0;
  const auto size = int64_t(rate_by_active_ranks.size());
  if (ranks <= size) return rate_by_active_ranks[size_t(ranks - 1)];
  return rate_by_active_ranks.back() * double(size) / double(ranks);
}

Contention::Best Contention::best(int64_t lanes) const {
  if (rate_by_active_ranks.empty()) return {1.0, double(lanes)};
  Best best;
  for (int64_t active = 1; active <= lanes; ++active) {
    best.of_one = std::max(best.of_one, rate(active));
    best.of_all = std::max(best.of_all, double(active) * rate(active));
  }
  return best;
}

namespace {

// The rule: start = latest end of the waits and of the last instruction in each of the lanes. `ended` is
// called with every instruction and its end; if it returns false, the rest is left out.
template <class Ended>
bool run_in_order(const StepProgram& program, std::span<const double> durations_s, Timeline& timeline,
                  Ended&& ended) {
  MPT_CHECK(durations_s.size() == program.instructions.size(), "{} durations for {} instructions",
            durations_s.size(), program.instructions.size());
  timeline.spans.resize(program.instructions.size());
  std::vector<double> lane_free(size_t(program.ranks) * kStreamCount, 0.0);
  for (InstructionId id = 0; id < program.size(); ++id) {
    double start = 0.0;
    for (const InstructionId wait : program.waits(id))
      start = std::max(start, timeline.spans[size_t(wait)].end_s);
    for (const Lane& lane : program.lanes(id)) start = std::max(start, lane_free[size_t(lane.index())]);
    const double end = start + durations_s[size_t(id)];
    for (const Lane& lane : program.lanes(id)) lane_free[size_t(lane.index())] = end;
    timeline.spans[size_t(id)] = {start, end};
    if (!ended(id, end)) {
      timeline.spans.resize(size_t(id) + 1);
      return false;
    }
  }
  return true;
}

bool at_full_speed(const StepProgram& program, const Contention& contention) {
  // Nothing is shared if any number of lanes runs at full speed.
  for (int lanes = 1; lanes <= program.ranks; ++lanes)
    if (contention.rate(lanes) < 1.0) return false;
  return true;
}

// Simulates by events: when an instruction ends, the instructions that waited only for it start. All compute
// advances at one rate, so its ends are kept on a clock that runs at that rate.
Timeline contended(const StepProgram& program, std::span<const double> durations_s,
                   const Contention& contention) {
  const size_t count = program.instructions.size();
  std::vector<std::vector<InstructionId>> followers(count);
  std::vector<int> waiting(count, 0);
  std::vector<InstructionId> last_on_lane(size_t(program.ranks) * kStreamCount, -1);
  const auto wait = [&](InstructionId id, InstructionId earlier) {
    followers[size_t(earlier)].push_back(id);
    ++waiting[size_t(id)];
  };
  for (InstructionId id = 0; id < program.size(); ++id) {
    for (const InstructionId earlier : program.waits(id)) wait(id, earlier);
    for (const Lane& lane : program.lanes(id)) {
      const InstructionId last = std::exchange(last_on_lane[size_t(lane.index())], id);
      if (last >= 0) wait(id, last);
    }
  }

  using End = std::pair<double, InstructionId>;
  using Ends = std::priority_queue<End, std::vector<End>, std::greater<>>;
  Ends computing, others;
  double now_s = 0.0, clock_s = 0.0;
  Timeline timeline{std::vector<Span>(count)};
  const auto start = [&](InstructionId id) {
    timeline.spans[size_t(id)].start_s = now_s;
    if (program.lanes(id).front().stream == Stream::compute)
      computing.emplace(clock_s + durations_s[size_t(id)], id);
    else
      others.emplace(now_s + durations_s[size_t(id)], id);
  };
  for (InstructionId id = 0; id < program.size(); ++id)
    if (waiting[size_t(id)] == 0) start(id);
  while (!computing.empty() || !others.empty()) {
    const double rate = contention.rate(int64_t(computing.size()));
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const double computed_s = computing.empty() ? kNever : now_s + (computing.top().first - clock_s) / rate;
    const double other_s = others.empty() ? kNever : others.top().first;
    Ends& next = computed_s <= other_s ? computing : others;
    clock_s = computed_s <= other_s ? computing.top().first : clock_s + (other_s - now_s) * rate;
    now_s = std::min(computed_s, other_s);
    const InstructionId ended = next.top().second;
    next.pop();
    timeline.spans[size_t(ended)].end_s = now_s;
    for (const InstructionId id : followers[size_t(ended)])
      if (--waiting[size_t(id)] == 0) start(id);
  }
  return timeline;
}

}  // namespace

Timeline simulate(const StepProgram& program, std::span<const double> durations_s) {
  Timeline timeline;
  run_in_order(program, durations_s, timeline, [](InstructionId, double) { return true; });
  return timeline;
}

Timeline simulate(const StepProgram& program, std::span<const double> durations_s,
                  const Contention& contention) {
  if (at_full_speed(program, contention)) return simulate(program, durations_s);
  return contended(program, durations_s, contention);
}

Timeline simulate(const Plan& plan, const StepProgram& program) {
  return simulate(program, durations_of(plan, program),
                  Contention{plan.rate_by_active_ranks, plan.layout.tensor * plan.layout.replicas()});
}

double step_time_within(const StepProgram& program, std::span<const double> durations_s,
                        const Contention& contention, double limit_s, Timeline& timeline) {
  if (!at_full_speed(program, contention)) {
    timeline = contended(program, durations_s, contention);
    return step_time_s(timeline);
  }
  std::vector<double> left(size_t(program.ranks), 0.0);  // work of each rank's compute lane
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Lane& lane = program.lanes(id).front();
    if (lane.stream == Stream::compute) left[size_t(lane.rank)] += durations_s[size_t(id)];
  }
  const double most_s = limit_s * (1.0 + 1e-9);  // a rounding error must not drop a tie
  const bool whole = run_in_order(program, durations_s, timeline, [&](InstructionId id, double end) {
    const Lane& lane = program.lanes(id).front();
    if (lane.stream != Stream::compute) return true;
    left[size_t(lane.rank)] -= durations_s[size_t(id)];
    return end + left[size_t(lane.rank)] <= most_s;
  });
  return whole ? step_time_s(timeline) : std::numeric_limits<double>::infinity();
}

}  // namespace mpt::planner
