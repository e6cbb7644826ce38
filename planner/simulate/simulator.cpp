// SPDX-License-Identifier: Apache-2.0
#include "planner/simulate/simulator.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace mpt::planner {
namespace {

// Event-driven: what runs, how much of it is left, and the rate at which compute advances.
class ContendedSimulation {
 public:
  ContendedSimulation(const StepProgram& program, std::span<const double> durations_s,
                      const Contention& contention)
      : program_(program), durations_s_(durations_s), contention_(contention) {
    timeline_.spans.resize(program.instructions.size());
    waiting_.resize(program.instructions.size());
    followers_.resize(program.instructions.size());
    std::vector<InstructionId> last_on_lane(size_t(program.ranks) * kStreamCount, -1);
    for (InstructionId id = 0; id < program.size(); ++id) {
      for (const InstructionId wait : program.waits(id)) add_edge(wait, id);
      for (const Lane& lane : program.lanes(id)) {
        InstructionId& last = last_on_lane[size_t(lane.index())];
        if (last >= 0) add_edge(last, id);
        last = id;
      }
    }
  }

  Timeline run() {
    for (InstructionId id = 0; id < program_.size(); ++id) {
      if (waiting_[size_t(id)] == 0) start(id);
    }
    while (!running_.empty()) advance();
    return std::move(timeline_);
  }

 private:
  struct Running {
    InstructionId id;
    double left_s;  // at full rate
    bool compute;
  };

  void add_edge(InstructionId from, InstructionId to) {
    followers_[size_t(from)].push_back(to);
    ++waiting_[size_t(to)];
  }

  void start(InstructionId id) {
    const bool compute = program_.instructions[size_t(id)].is_compute();
    timeline_.spans[size_t(id)].start_s = now_s_;
    running_.push_back({id, durations_s_[size_t(id)], compute});
    active_ += compute ? 1 : 0;
  }

  void advance() {
    const double rate = contention_.rate(active_);
    double step = std::numeric_limits<double>::infinity();
    for (const Running& r : running_) step = std::min(step, r.compute ? r.left_s / rate : r.left_s);
    now_s_ += step;
    std::vector<InstructionId> finished;
    for (Running& r : running_) {
      const double needed = r.compute ? r.left_s / rate : r.left_s;
      // What ends with this step ends exactly, not at a rounding error before or after it.
      if (needed <= step * (1.0 + 1e-12)) {
        finished.push_back(r.id);
        active_ -= r.compute ? 1 : 0;
      }
      r.left_s -= r.compute ? step * rate : step;
    }
    std::erase_if(running_, [&](const Running& r) {
      return std::find(finished.begin(), finished.end(), r.id) != finished.end();
    });
    std::sort(finished.begin(), finished.end());
    for (const InstructionId id : finished) timeline_.spans[size_t(id)].end_s = now_s_;
    for (const InstructionId id : finished) {
      for (const InstructionId next : followers_[size_t(id)]) {
        if (--waiting_[size_t(next)] == 0) start(next);
      }
    }
  }

  const StepProgram& program_;
  std::span<const double> durations_s_;
  const Contention& contention_;
  std::vector<int> waiting_;
  std::vector<std::vector<InstructionId>> followers_;
  std::vector<Running> running_;
  int64_t active_ = 0;
  double now_s_ = 0.0;
  Timeline timeline_;
};

}  // namespace

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

// The rule: start = latest end of the waits and of what last used each of the lanes. `ended` is told every
// instruction and its end; returning false leaves the rest out.
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
    if (!ended(id, end)) return false;
  }
  return true;
}

bool at_full_speed(const StepProgram& program, const Contention& contention) {
  // Nothing to share where any number of lanes runs at full speed.
  for (int lanes = 1; lanes <= program.ranks; ++lanes) {
    if (contention.rate(lanes) < 1.0) return false;
  }
  return true;
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
  return ContendedSimulation(program, durations_s, contention).run();
}

double step_time_within(const StepProgram& program, std::span<const double> durations_s,
                        const Contention& contention, double limit_s, Timeline& timeline) {
  if (!at_full_speed(program, contention)) {
    timeline = ContendedSimulation(program, durations_s, contention).run();
    return step_time_s(timeline);
  }
  std::vector<double> left(size_t(program.ranks), 0.0);  // work of each rank's compute lane
  for (InstructionId id = 0; id < program.size(); ++id) {
    const Lane& lane = program.lanes(id).front();
    if (lane.stream == Stream::compute) left[size_t(lane.rank)] += durations_s[size_t(id)];
  }
  const double most_s = limit_s * (1.0 + 1e-9);  // a rounding error must not drop what is as fast
  const bool whole = run_in_order(program, durations_s, timeline, [&](InstructionId id, double end) {
    const Lane& lane = program.lanes(id).front();
    if (lane.stream != Stream::compute) return true;
    left[size_t(lane.rank)] -= durations_s[size_t(id)];
    return end + left[size_t(lane.rank)] <= most_s;
  });
  return whole ? step_time_s(timeline) : std::numeric_limits<double>::infinity();
}

}  // namespace mpt::planner
