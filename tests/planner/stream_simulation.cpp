// SPDX-License-Identifier: Apache-2.0
#include "tests/planner/stream_simulation.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <tuple>

#include "base/error.h"

namespace mpt::planner {

int task_stream(CommunicationKind kind) {
  return kind <= CommunicationKind::expert ? kStreamCount + int(kind) : int(Stream::reduction);
}

int32_t StreamProgram::add(StreamTask task, std::span<const TaskLane> lanes, std::span<const int32_t> waits) {
  task.first_lane = int32_t(lane_table.size());
  task.lane_count = int32_t(lanes.size());
  task.first_wait = int32_t(wait_table.size());
  task.wait_count = int32_t(waits.size());
  lane_table.insert(lane_table.end(), lanes.begin(), lanes.end());
  wait_table.insert(wait_table.end(), waits.begin(), waits.end());
  tasks.push_back(task);
  return int32_t(tasks.size() - 1);
}

namespace {

class StreamSimulation {
 public:
  StreamSimulation(const StreamProgram& program, const Contention& contention)
      : program_(program),
        contention_(contention),
        contended_(!contention.rate_by_active_ranks.empty()),
        waiting_(program.tasks.size(), 0),
        spans_(program.tasks.size()),
        ranks_(size_t(program.ranks)) {
    collect_followers();
  }

  std::vector<Span> run() {
    for (int32_t t = 0; t < int32_t(waiting_.size()); ++t) {
      if (waiting_[size_t(t)] == 0) start(t);
    }
    foresee_ends();
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.rank >= 0 && event.version != ranks_[size_t(event.rank)].version) continue;
      now_s_ = event.at_s;
      if (event.rank >= 0) {
        end_next_of(event.rank);
      } else {
        end(event.task);
      }
      foresee_ends();
    }
    MPT_CHECK(ended_ == spans_.size(), "{} of {} tasks ended", ended_, spans_.size());
    return std::move(spans_);
  }

 private:
  // The next end on a rank, valid while the rank's version is that; or of a task that nothing slows.
  struct Event {
    double at_s;
    int rank;
    uint32_t version;
    int32_t task;
    bool operator>(const Event& other) const {
      return std::tie(at_s, rank, task) > std::tie(other.at_s, other.rank, other.task);
    }
  };
  struct Running {
    int32_t task;
    bool compute;
    double lost, left_s;  // the latter at full speed
  };
  struct Rank {
    std::vector<Running> running;
    std::vector<int32_t> next;  // of them, those that end first
    double at_s = 0.0;          // to which `left_s` belongs
    uint32_t version = 0;
    bool changed = false;
  };

  void collect_followers() {
    const size_t count = program_.tasks.size();
    std::vector<std::pair<int32_t, int32_t>> edges;
    std::vector<int32_t> last_on_lane(size_t(program_.ranks) * kTaskStreams, -1);
    for (size_t t = 0; t < count; ++t) {
      for (const int32_t wait : program_.waits(t)) {
        MPT_CHECK(wait >= 0 && size_t(wait) < t, "task {} waits on task {}", t, wait);
        edges.emplace_back(wait, int32_t(t));
      }
      for (const TaskLane& lane : program_.lanes(t)) {
        int32_t& last = last_on_lane[size_t(lane.rank * kTaskStreams + lane.stream)];
        if (last >= 0) edges.emplace_back(last, int32_t(t));
        last = int32_t(t);
      }
    }
    first_follower_.assign(count + 1, 0);
    for (const auto& [from, to] : edges) {
      ++first_follower_[size_t(from) + 1];
      ++waiting_[size_t(to)];
    }
    for (size_t t = 0; t < count; ++t) first_follower_[t + 1] += first_follower_[t];
    followers_.resize(edges.size());
    std::vector<int32_t> at(first_follower_.begin(), first_follower_.end() - 1);
    for (const auto& [from, to] : edges) followers_[size_t(at[size_t(from)]++)] = to;
  }

  static bool is_transfer(int stream) {
    return stream > int(Stream::compute) && stream < int(Stream::reduction);
  }

  double rate_of(const Rank& rank, const Running& r) const {
    double lost = 0.0;
    bool beside_compute = false;
    for (const Running& other : rank.running) {
      if (other.compute) beside_compute = true;
      if (!other.compute) lost += other.lost;
    }
    if (r.compute) return contention_rate_ / (1.0 + lost);
    return beside_compute ? 1.0 / (1.0 + r.lost) : 1.0;
  }

  // Brings what the rank runs to the present, before its rates change.
  void advance(Rank& rank) {
    if (now_s_ > rank.at_s) {
      std::vector<double>& rates = rates_;
      rates.clear();
      for (const Running& r : rank.running) rates.push_back(rate_of(rank, r));
      for (size_t k = 0; k < rates.size(); ++k) rank.running[k].left_s -= (now_s_ - rank.at_s) * rates[k];
    }
    rank.at_s = now_s_;
    if (!rank.changed) changed_.push_back(int32_t(&rank - ranks_.data()));
    rank.changed = true;
  }

  void count_compute(int more) {
    computing_ += more;
    if (!contended_) return;
    for (Rank& rank : ranks_) advance(rank);
    contention_rate_ = contention_.rate(computing_);
  }

  void start(int32_t t) {
    const StreamTask& task = program_.tasks[size_t(t)];
    const std::span<const TaskLane> lanes = program_.lanes(size_t(t));
    spans_[size_t(t)].start_s = now_s_;
    if (lanes.size() != 1 || is_transfer(lanes[0].stream)) {
      events_.push({now_s_ + task.seconds, -1, 0, t});
      return;
    }
    const bool compute = lanes[0].stream == int(Stream::compute);
    if (compute) count_compute(1);
    Rank& rank = ranks_[size_t(lanes[0].rank)];
    advance(rank);
    rank.running.push_back({t, compute, task.lost, task.seconds});
  }

  void end(int32_t t) {
    spans_[size_t(t)].end_s = now_s_;
    ++ended_;
    for (int32_t f = first_follower_[size_t(t)]; f < first_follower_[size_t(t) + 1]; ++f) {
      const int32_t next = followers_[size_t(f)];
      if (--waiting_[size_t(next)] == 0) start(next);
    }
  }

  void end_next_of(int r) {
    Rank& rank = ranks_[size_t(r)];
    advance(rank);
    int computed = 0;
    std::erase_if(rank.running, [&](const Running& running) {
      const bool ends = std::find(rank.next.begin(), rank.next.end(), running.task) != rank.next.end();
      computed += ends && running.compute ? 1 : 0;
      return ends;
    });
    if (computed > 0) count_compute(-computed);
    for (const int32_t t : std::vector<int32_t>(std::move(rank.next))) end(t);
  }

  void foresee_ends() {
    for (const int32_t r : changed_) {
      Rank& rank = ranks_[size_t(r)];
      rank.changed = false;
      ++rank.version;
      rank.next.clear();
      if (rank.running.empty()) continue;
      double next_s = std::numeric_limits<double>::infinity();
      const auto needed_s = [&](const Running& running) {
        return std::max(0.0, running.left_s) / rate_of(rank, running);
      };
      for (const Running& running : rank.running) next_s = std::min(next_s, needed_s(running));
      // What ends with the first ends with it exactly, not at a rounding error behind it.
      for (const Running& running : rank.running) {
        if (needed_s(running) <= next_s * (1.0 + 1e-12)) rank.next.push_back(running.task);
      }
      std::sort(rank.next.begin(), rank.next.end());
      events_.push({now_s_ + next_s, r, rank.version, -1});
    }
    changed_.clear();
  }

  const StreamProgram& program_;
  const Contention& contention_;
  const bool contended_;
  std::vector<int32_t> waiting_, followers_, first_follower_;
  std::vector<Span> spans_;
  std::vector<Rank> ranks_;
  std::vector<int32_t> changed_;  // ranks that started or ended something since their next end was foreseen
  std::vector<double> rates_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  double now_s_ = 0.0, contention_rate_ = 1.0;
  int64_t computing_ = 0;
  size_t ended_ = 0;
};

}  // namespace

std::vector<Span> simulate(const StreamProgram& program, const Contention& contention) {
  return StreamSimulation(program, contention).run();
}

}  // namespace mpt::planner
