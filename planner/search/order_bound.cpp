// SPDX-License-Identifier: Apache-2.0
#include "planner/search/order_bound.h"

#include <algorithm>
#include <array>
#include <limits>

namespace mpt::planner {
namespace {

bool sends_home(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::input_gradient;
}

}  // namespace

OrderBound::OrderBound(const Schedule& schedule)
    : rank_of_stage_(schedule.rank_of_stage),
      stages_(schedule.rows.size()),
      chunks_(size_t(schedule.chunks)) {
  for (size_t s = 0; s < rank_of_stage_.size(); ++s) stages_[size_t(rank_of_stage_[s])].push_back(int(s));
  for (size_t r = 0; r < schedule.rows.size(); ++r) {
    const std::vector<Action>& row = schedule.rows[r];
    const auto first_forward = [&](int stage) {
      const auto found = std::find_if(row.begin(), row.end(), [&](const Action& a) {
        return a.kind == ActionKind::forward && a.stage == stage;
      });
      return size_t(found - row.begin());
    };
    const auto last_home = [&](int stage) {
      const auto found = std::find_if(
          row.rbegin(), row.rend(), [&](const Action& a) { return sends_home(a.kind) && a.stage == stage; });
      return size_t(row.rend() - found) - 1;
    };
    for (const Action& a : row) {
      has_whole_ |= a.kind == ActionKind::backward;
      has_split_ |= a.kind == ActionKind::input_gradient;
    }
    // Of more than two stages of a rank, those between say little that the outer two do not.
    const int lowest = stages_[r].front(), highest = stages_[r].back();
    for (const int from : {lowest, highest}) {
      for (const int to : {lowest, highest}) {
        if (const size_t at = first_forward(from), end = last_home(to); at <= end)
          add_path(schedule, int(r), at, end, to);
        if (lowest == highest) break;
      }
      add_path(schedule, int(r), first_forward(from), row.size() - 1, -1);
      if (lowest == highest) break;
    }
  }
}

void OrderBound::add_path(const Schedule& schedule, int rank, size_t from, size_t to, int to_stage) {
  const std::vector<Action>& row = schedule.rows[size_t(rank)];
  const std::vector<int>& stages = stages_[size_t(rank)];
  const size_t begin = counts_.size();
  counts_.resize(begin + chunks_ * kKinds, 0);
  for (size_t i = from; i <= to; ++i) {
    const auto chunk = size_t(std::lower_bound(stages.begin(), stages.end(), row[i].stage) - stages.begin());
    ++counts_[begin + chunk * kKinds + size_t(row[i].kind)];
  }
  paths_.push_back({rank, row[from].stage, to_stage});
}

std::vector<double> OrderBound::there_s(const StepCost& cost, double best_rate) const {
  std::vector<double> there_s(cost.stages.size(), 0.0);
  for (size_t s = 1; s < there_s.size(); ++s) {
    const bool crosses = rank_of_stage_[s - 1] != rank_of_stage_[s];
    const StageCost& below = cost.stages[s - 1];
    there_s[s] = there_s[s - 1] + below.of(InstructionKind::forward) / best_rate +
                 (crosses ? below.of(InstructionKind::transfer_activation) : 0.0);
  }
  return there_s;
}

std::vector<double> OrderBound::home_s(const StepCost& cost, double best_rate) const {
  // Where a schedule has both, the way home is as fast as the faster.
  const auto back_s = [&](const StageCost& stage) {
    const double whole = stage.of(InstructionKind::backward),
                 split = stage.of(InstructionKind::input_gradient);
    return !has_split_ ? whole : !has_whole_ ? split : std::min(whole, split);
  };
  std::vector<double> home_s(cost.stages.size(), 0.0);
  for (size_t s = 1; s < home_s.size(); ++s) {
    const bool crosses = rank_of_stage_[s - 1] != rank_of_stage_[s];
    home_s[s] = home_s[s - 1] + back_s(cost.stages[s - 1]) / best_rate +
                (crosses ? cost.stages[s].of(InstructionKind::transfer_gradient) : 0.0);
  }
  return home_s;
}

double OrderBound::step_end_s(const Layout& layout, const StepCost& cost, double best_rate) const {
  double step_end_s = 0.0;
  for (const std::vector<int>& own : stages_) {
    StepEnd end;
    for (const int s : own) {
      const StageCost& stage = cost.stages[size_t(s)];
      end.add(stage.of(InstructionKind::optimizer_step) / best_rate,
              layout.gathers_after_step() ? stage.of(InstructionKind::gather_parameters) : 0.0);
    }
    step_end_s = std::max(step_end_s, end.end_s);
  }
  return step_end_s;
}

double OrderBound::work_s(size_t path, const StepCost& cost) const {
  static constexpr std::array<InstructionKind, kKinds> kInstructions{
      InstructionKind::forward, InstructionKind::backward, InstructionKind::input_gradient,
      InstructionKind::weight_gradient};
  const std::vector<int>& own = stages_[size_t(paths_[path].rank)];
  const int32_t* counts = &counts_[path * chunks_ * kKinds];
  double work_s = 0.0;
  for (size_t c = 0; c < own.size(); ++c) {
    const StageCost& stage = cost.stages[size_t(own[c])];
    for (size_t k = 0; k < kKinds; ++k) work_s += double(counts[c * kKinds + k]) * stage.of(kInstructions[k]);
  }
  return work_s;
}

double OrderBound::seconds(const Layout& layout, const StepCost& cost, double best_rate) const {
  const std::vector<double> there_s = this->there_s(cost, best_rate), home_s = this->home_s(cost, best_rate);
  const bool reduces = layout.reduces_gradients();
  const StageCost& first = cost.stages.front();
  const double last_weight_s =
      has_split_ && !has_whole_ ? first.of(InstructionKind::weight_gradient) / best_rate : 0.0;
  const double first_reduction_s = reduces ? first.of(InstructionKind::reduce_gradient) : 0.0;
  std::vector<double> least_reduction_s;  // of each rank's stages
  for (const std::vector<int>& own : stages_) {
    double least_s = std::numeric_limits<double>::infinity();
    for (const int s : own)
      least_s = std::min(least_s, cost.stages[size_t(s)].of(InstructionKind::reduce_gradient));
    least_reduction_s.push_back(reduces ? least_s : 0.0);
  }
  double longest_s = 0.0;
  for (size_t p = 0; p < paths_.size(); ++p) {
    const Path& path = paths_[p];
    const double rest_s = path.to_stage < 0
                              ? least_reduction_s[size_t(path.rank)]
                              : home_s[size_t(path.to_stage)] + last_weight_s + first_reduction_s;
    longest_s = std::max(longest_s, there_s[size_t(path.from_stage)] + work_s(p, cost) / best_rate + rest_s);
  }
  // A rounding error must not turn the bound into more than the time it bounds.
  return (longest_s + cost.reduce_norm_s + step_end_s(layout, cost, best_rate)) * (1.0 - 1e-9);
}

}  // namespace mpt::planner
