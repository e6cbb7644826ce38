// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepBounds: lower bounds of a layout's step time that hold for every schedule.

#include <span>

#include "core/schedule_catalog.h"
#include "planner/cost/step_pricer.h"
#include "planner/simulate/simulator.h"

namespace mpt::planner {

/// Never above the simulated step time. Each rank's work waits for one micro-batch to come through the stages
/// below the rank's lowest and over the links between them. After it comes the later of two ends. One is that
/// micro-batch's way back and the reduction of stage 0's gradients. The other is the rank's last weight
/// gradient, where those are computed apart, and a reduction of its gradients. Then the norm, the optimizer
/// and the gathering of weights. None of these overlaps another, so they add up. Where ranks share cores,
/// compute advances at no more than the best rate of one lane, and all ranks together at no more than the
/// best total. Nor is a step shorter than one micro-batch's way there and back and all others' transfers over
/// one of its links. Both where backwards are whole and where they are split; and `held` where rank r of p
/// ranks holds p - r micro-batches at most, so that the next one waits for a way to the last stage and back.
struct StepBounds {
  double whole_s = 0.0, split_s = 0.0;
  double whole_held_s = 0.0, split_held_s = 0.0;
  /// By a schedule; one that is made to measure may split backwards or not.
  double of(const ScheduleEntry& entry) const;
  double least_s() const { return std::min({whole_s, split_s, whole_held_s, split_held_s}); }
};

/// The longest sums of the micro-batches alone, with split and with whole backwards. home_s: a rank's work,
/// the way to it and the way home. there_s: the same without the way home. all_work_s: work of all ranks.
/// held_s: of a rank that holds few micro-batches. link_s: of the links, and of one micro-batch's whole way.
struct MicroBatchBounds {
  struct Longest {
    double home_s = 0.0, there_s = 0.0, all_work_s = 0.0, held_s = 0.0, link_s = 0.0;
  };
  Longest whole, split;
  /// Of the step of which these are the micro-batches, priced without sharding.
  StepBounds with(const RestOfStep& rest, int64_t micro_batches, const Contention::Best& best) const;
};

MicroBatchBounds micro_batch_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                                      int64_t micro_batches, const Contention::Best& best);
StepBounds lower_bounds_s(const Layout& layout, const StepCost& cost, std::span<const int> rank_of_stage,
                          int64_t micro_batches, const Contention::Best& best);
/// The same from the kinds of a layout's stages.
StepBounds lower_bounds_s(const Layout& layout, const KindCosts& costs, const StageKinds& stages,
                          int64_t micro_batches, const Contention::Best& best);

}  // namespace mpt::planner
