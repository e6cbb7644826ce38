// SPDX-License-Identifier: Apache-2.0
#include "core/schedules/list_scheduler.h"

#include <array>
#include <queue>

#include "base/error.h"
#include "core/action_memory.h"

namespace mpt {
namespace {

constexpr double kNotReady = std::numeric_limits<double>::infinity();
constexpr int kNone = -1;  // no stage

class ListScheduling {
 public:
  ListScheduling(const ListTask& task, const ListPolicy& policy, double give_up_s)
      : task_(task),
        policy_(policy),
        give_up_s_(give_up_s),
        schedule_{"generated", task.ranks, task.chunks, task.micro_batches, task.rank_of_stage, {}},
        stages_(task.rank_of_stage.size()),
        ranks_(size_t(task.ranks)) {
    schedule_.rows.resize(ranks_.size());
    for (size_t s = 0; s < stages_.size(); ++s) {
      Stage& stage = stages_[s];
      stage.forward_ready.assign(size_t(task.micro_batches), s == 0 ? 0.0 : kNotReady);
      stage.gradient_ready.assign(size_t(task.micro_batches), kNotReady);
      Rank& rank = ranks_[size_t(task.rank_of_stage[s])];
      const StageSeconds& seconds = task.seconds[s];
      if (rank.stages.empty() && s > 0)
        rank.way_down_s = stages_[s - 1].way_down_s + across(s, s - 1, seconds.gradient_transfer_s);
      stage.way_down_s = seconds.input_gradient_s +
                         (s == 0 ? seconds.weight_gradient_s
                                 : stages_[s - 1].way_down_s + across(s, s - 1, seconds.gradient_transfer_s));
      rank.stages.push_back(int(s));
      const double chain_s = seconds.forward_s + seconds.input_gradient_s;
      rank.chain_left_s += task.micro_batches * chain_s;
      rank.chain_left += 2 * int64_t(task.micro_batches);
      rank.left_s += task.micro_batches * (chain_s + seconds.weight_gradient_s);
      const StageFootprint& f = task.footprints[s];
      rank.held += f.static_bytes() + f.late_gradient_bytes;
      rank.forward_workspace = std::max(rank.forward_workspace, f.forward_workspace_bytes);
      rank.backward_workspace = std::max(rank.backward_workspace, f.backward_workspace_bytes);
      rank.for_weight = std::max(rank.for_weight, f.saved_for_weight_bytes);
    }
  }

  std::optional<TimedSchedule> run() {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (!has_room(ranks_[r], int(r))) return std::nullopt;
      wake(int(r), 0.0);
    }
    double last = 0.0;
    while (!wakes_.empty()) {
      const auto [at, r] = wakes_.top();
      wakes_.pop();
      const Rank& rank = ranks_[size_t(r)];
      if (rank.free_at > at) continue;
      // Apart from weight gradients, the last action of a rank is the last micro-batch's input gradient on
      // its lowest stage. That gradient must still pass through all stages down to stage 0.
      const double chain_s = rank.chain_left > 0 ? rank.chain_left_s + rank.way_down_s : 0.0;
      if (at + std::max(rank.left_s, chain_s) > give_up_s_) return std::nullopt;
      last = std::max(last, step(r, at));
    }
    const auto done = sum_of<size_t>(schedule_.rows, [](const auto& row) { return row.size(); });
    if (done != 3 * stages_.size() * size_t(task_.micro_batches)) return std::nullopt;
    return TimedSchedule{std::move(schedule_), last};
  }

 private:
  struct Stage {
    std::vector<double> forward_ready, gradient_ready;            // by micro-batch
    int forwards = 0, input_gradients = 0, weight_gradients = 0;  // done so far, in order
    double way_down_s = 0.0;  // from the start of its input gradient to the end of stage 0's weight gradient
  };
  struct Rank {
    std::vector<int> stages;
    double free_at = 0.0;
    double left_s = 0.0;                          // work not done yet
    double chain_left_s = 0.0, way_down_s = 0.0;  // left_s without weight gradients; the time below the rank
    int64_t chain_left = 0;                       // actions of the chain
    double alarm = kNotReady;                     // a wake that is already set
    int64_t held = 0;
    int64_t forward_workspace = 0, backward_workspace = 0, for_weight = 0;  // the largest of its stages
    /// Memory beyond saved activations: for a forward, or for an input and a weight gradient after it.
    int64_t transient() const { return std::max(forward_workspace, for_weight + backward_workspace); }
    bool gradient_last = false;
  };
  using Wake = std::pair<double, int>;

  // One micro-batch of every stage must fit, or the rank could block itself.
  bool has_room(const Rank& rank, int r) const {
    const auto one_of_each =
        sum_of<int64_t>(rank.stages, [&](int s) { return task_.footprints[size_t(s)].saved_bytes; });
    return rank.held + one_of_each + rank.transient() <= task_.limit_bytes[size_t(r)];
  }

  void wake(int r, double at) { wakes_.push({at, r}); }

  // A forward leaves memory for one micro-batch in each later stage of its rank, so that a started
  // micro-batch can always finish.
  bool admits(const Rank& rank, int r, ActionKind kind, int stage) const {
    int64_t needed = rank.held;
    if (kind == ActionKind::forward) {
      needed += rank.transient();
      for (const int s : rank.stages)
        if (s >= stage) needed += task_.footprints[size_t(s)].saved_bytes;
    } else {
      // Memory while it runs, and while any weight gradient runs after it.
      const ActionMemory memory = memory_of(kind, task_.footprints[size_t(stage)], false);
      const int64_t left = memory.acquire_bytes - memory.release_bytes + rank.backward_workspace;
      needed += std::max(memory.transient_bytes(), left);
    }
    return needed <= task_.limit_bytes[size_t(r)];
  }

  double ready_at(const Stage& stage, ActionKind kind) const {
    if (kind == ActionKind::forward)
      return stage.forwards < task_.micro_batches ? stage.forward_ready[size_t(stage.forwards)] : kNotReady;
    return stage.input_gradients < task_.micro_batches ? stage.gradient_ready[size_t(stage.input_gradients)]
                                                       : kNotReady;
  }

  // The rank's latest stage with a ready action of `kind`, which is nearest to the end of its micro-batch, or
  // kNone. `coming`: when the next such action will be ready, as far as is known.
  int pick(const Rank& rank, int r, ActionKind kind, double at, double& coming) const {
    int best = kNone;
    for (const int s : rank.stages) {
      const double ready = ready_at(stages_[size_t(s)], kind);
      if (ready == kNotReady || !admits(rank, r, kind, s)) continue;
      if (ready > at)
        coming = std::min(coming, ready);
      else
        best = std::max(best, s);
    }
    return best;
  }

  // The stage with the weight gradient that has waited longest.
  int oldest_weight_gradient(const Rank& rank) const {
    int best = kNone;
    for (const int s : rank.stages) {
      const Stage& stage = stages_[size_t(s)];
      if (stage.weight_gradients == stage.input_gradients) continue;
      if (best == kNone || stage.weight_gradients < stages_[size_t(best)].weight_gradients) best = s;
    }
    return best;
  }

  struct Choice {
    ActionKind kind = ActionKind::forward;
    int stage = kNone;
  };
  Choice choose(const Rank& rank, int r, double at, double& coming) const {
    const Choice forward{ActionKind::forward, pick(rank, r, ActionKind::forward, at, coming)};
    const Choice gradient{ActionKind::input_gradient, pick(rank, r, ActionKind::input_gradient, at, coming)};
    const Choice weight{ActionKind::weight_gradient, oldest_weight_gradient(rank)};
    if (gradient.stage != kNone)
      return forward.stage != kNone && policy_.alternates && rank.gradient_last ? forward : gradient;
    if (weight.stage != kNone && policy_.weight_before_forward) return weight;
    if (forward.stage != kNone || weight.stage == kNone) return forward;
    const double patience_s = policy_.patience * task_.seconds[size_t(weight.stage)].weight_gradient_s;
    return coming - at < patience_s ? Choice{} : weight;
  }

  // Actions of one kind and stage run in the order of micro-batches.
  Action next_of(const Choice& choice) const {
    const Stage& stage = stages_[size_t(choice.stage)];
    const int micro_batch = choice.kind == ActionKind::forward          ? stage.forwards
                            : choice.kind == ActionKind::input_gradient ? stage.input_gradients
                                                                        : stage.weight_gradients;
    return {choice.kind, choice.stage, micro_batch};
  }

  // Starts the next action of the rank. Returns its end, or 0 if no action could start.
  double step(int r, double at) {
    Rank& rank = ranks_[size_t(r)];
    if (rank.alarm <= at) rank.alarm = kNotReady;
    double coming = kNotReady;
    const Choice choice = choose(rank, r, at, coming);
    if (choice.stage == kNone) {
      if (coming < rank.alarm) wake(r, rank.alarm = coming);
      return 0.0;
    }
    const Action action = next_of(choice);
    schedule_.rows[size_t(r)].push_back(action);
    const ActionMemory memory = memory_of(action.kind, task_.footprints[size_t(action.stage)], false);
    rank.held += memory.acquire_bytes - memory.release_bytes;
    const double seconds = finish(action, at);
    const double end = rank.free_at = at + seconds;
    rank.left_s -= seconds;
    if (action.kind != ActionKind::weight_gradient) {
      rank.chain_left_s -= seconds;
      --rank.chain_left;
    }
    rank.gradient_last = action.kind == ActionKind::input_gradient;
    wake(r, end);
    return end;
  }

  // Returns the action's duration, and sets the ready times of the actions that depend on it.
  double finish(const Action& a, double at) {
    const auto s = size_t(a.stage), m = size_t(a.micro_batch);
    const StageSeconds& seconds = task_.seconds[s];
    Stage& stage = stages_[s];
    switch (a.kind) {
      case ActionKind::forward: {
        ++stage.forwards;
        const double end = at + seconds.forward_s;
        if (s + 1 < stages_.size())
          tell(s + 1, stages_[s + 1].forward_ready[m], end + across(s, s + 1, seconds.activation_transfer_s));
        else
          tell(s, stage.gradient_ready[m], end);
        return seconds.forward_s;
      }
      case ActionKind::input_gradient: {
        ++stage.input_gradients;
        const double end = at + seconds.input_gradient_s;
        if (s > 0)
          tell(s - 1, stages_[s - 1].gradient_ready[m], end + across(s, s - 1, seconds.gradient_transfer_s));
        return seconds.input_gradient_s;
      }
      default:
        ++stage.weight_gradients;
        return seconds.weight_gradient_s;
    }
  }

  double across(size_t from, size_t to, double transfer_s) const {
    return task_.rank_of_stage[from] == task_.rank_of_stage[to] ? 0.0 : transfer_s;
  }
  void tell(size_t stage, double& ready, double at) {
    ready = at;
    const int r = task_.rank_of_stage[stage];
    if (ranks_[size_t(r)].alarm <= at) return;
    ranks_[size_t(r)].alarm = at;
    wake(r, at);
  }

  const ListTask& task_;
  const ListPolicy& policy_;
  const double give_up_s_;
  Schedule schedule_;
  std::vector<Stage> stages_;
  std::vector<Rank> ranks_;
  std::priority_queue<Wake, std::vector<Wake>, std::greater<>> wakes_;
};

}  // namespace

std::span<const ListPolicy> list_policies() {
  // Each costs a pass over all actions. More policies found little further gain.
  static constexpr std::array<ListPolicy, 5> kPolicies{
      {{false, false, 0.0}, {false, false, 0.5}, {true, false, 0.0}, {true, false, 0.5}, {false, true, 0.0}}};
  return kPolicies;
}

std::optional<TimedSchedule> list_schedule(const ListTask& task, const ListPolicy& policy, double give_up_s) {
  return ListScheduling(task, policy, give_up_s).run();
}

std::vector<int> generated_placement(int ranks, int chunks) {
  return chunks == 2 ? v_placement(ranks, chunks) : round_robin_placement(ranks, chunks);
}

Schedule generate_list(int ranks, int chunks, int micro_batches) {
  ListTask task{ranks, chunks, micro_batches, generated_placement(ranks, chunks), {}, {}, {}};
  task.seconds.assign(size_t(ranks) * size_t(chunks), {1.0, 1.0, 1.0, 0.0, 0.0});
  task.footprints.resize(task.seconds.size());
  task.limit_bytes.assign(size_t(ranks), 0);
  auto made = list_schedule(task, list_policies().front());
  MPT_CHECK(made.has_value(), "no schedule of {} ranks without a limit on memory", ranks);
  return std::move(made->schedule);
}

}  // namespace mpt
