// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/generated.h"

#include <limits>
#include <utility>

#include "base/error.h"

namespace mpt {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

class Filling {
 public:
  Filling(Schedule& schedule, const std::vector<int>& most_held)
      : schedule_(schedule), most_held_(most_held), ranks_(schedule.rows.size()) {
    const size_t cells = size_t(schedule.stages()) * size_t(schedule.micro_batches);
    forward_done_.assign(cells, kNever);
    input_done_.assign(cells, kNever);
    for (size_t r = 0; r < ranks_.size(); ++r) {
      ranks_[r].order = std::move(schedule_.rows[r]);
      schedule_.rows[r].clear();
      left_ += ranks_[r].order.size() + ranks_[r].order.size() / 2;
    }
  }

  void run() {
    std::vector<std::pair<size_t, Action>> started;
    for (now_ = 0; left_ > 0; ++now_) {
      started.clear();
      for (size_t r = 0; r < ranks_.size(); ++r)
        if (const auto action = next_of(ranks_[r], most_held_[r])) started.emplace_back(r, *action);
      // Every action lasts one unit, so no action is still running. A rank that did not start now never will.
      MPT_CHECK(!started.empty(), "schedule {} holds too few micro-batches to go on", schedule_.name);
      for (const auto& [r, action] : started) finish(ranks_[r], schedule_.rows[r], action);
    }
  }

 private:
  struct Rank {
    std::vector<Action> order;  // forwards and input gradients
    size_t next = 0;
    std::vector<Action> open;  // weight gradients with their input gradient done, oldest first
    size_t first_open = 0;
    int held = 0;
  };

  size_t cell(int stage, int micro_batch) const {
    return size_t(stage) * size_t(schedule_.micro_batches) + size_t(micro_batch);
  }

  bool ready(const Action& a) const {
    const bool forward = a.kind == ActionKind::forward;
    const auto done = [&](const std::vector<int64_t>& table, int stage) {
      return table[cell(stage, a.micro_batch)] <= now_;
    };
    if (forward) return a.stage == 0 || done(forward_done_, a.stage - 1);
    return done(forward_done_, a.stage) &&
           (a.stage + 1 == schedule_.stages() || done(input_done_, a.stage + 1));
  }

  std::optional<Action> next_of(const Rank& rank, int most_held) const {
    if (rank.next < rank.order.size()) {
      const Action& a = rank.order[rank.next];
      if ((a.kind != ActionKind::forward || rank.held < most_held) && ready(a)) return a;
    }
    if (rank.first_open < rank.open.size()) return rank.open[rank.first_open];
    return std::nullopt;
  }

  void finish(Rank& rank, std::vector<Action>& row, const Action& a) {
    row.push_back(a);
    --left_;
    if (a.kind == ActionKind::weight_gradient) {
      ++rank.first_open;
      --rank.held;
      return;
    }
    ++rank.next;
    if (a.kind == ActionKind::forward) {
      forward_done_[cell(a.stage, a.micro_batch)] = now_ + 1;
      ++rank.held;
    } else {
      input_done_[cell(a.stage, a.micro_batch)] = now_ + 1;
      rank.open.push_back({ActionKind::weight_gradient, a.stage, a.micro_batch});
    }
  }

  Schedule& schedule_;
  const std::vector<int>& most_held_;
  std::vector<Rank> ranks_;
  std::vector<int64_t> forward_done_, input_done_;
  size_t left_ = 0;
  int64_t now_ = 0;
};

}  // namespace

void fill_weight_gradients(Schedule& schedule, const std::vector<int>& most_held) {
  Filling(schedule, most_held).run();
}

}  // namespace mpt
