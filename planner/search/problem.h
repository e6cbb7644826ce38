// SPDX-License-Identifier: Apache-2.0
#pragma once

// SearchProblem: what to plan, where, within which bounds.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/bound_words.h"
#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "core/plan_request.h"
#include "frameworks/supports/abilities.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

/// A node that the tiers of the search test (tiers.h), with the results of earlier tiers. Each level of the
/// tree has its own kind.
struct Probe {};

/// What a layout's traffic may run beside. Each is used wherever it applies: in this cost model what runs
/// beside compute never costs more than it does alone.
struct Overlaps {
  bool gradient_reduce = false, parameter_gather = false, tensor = false, transfer = true, exchange = false;
};

/// Frameworks as bits: those of SearchProblem::any_of by index, or the only one, and apart_from.
using Runners = uint32_t;
inline constexpr Runners kApart = Runners{1} << 31;
inline bool has_any(Runners runners) { return (runners & ~kApart) != 0; }
/// Whether one runs a layout and apart_from does not.
inline bool are_wanted(Runners runners) { return runners != 0 && runners < kApart; }

/// What the devices of one group of a mixed cluster cost and hold.
struct DevicePool {
  const CostSource* cost = nullptr;
  int64_t memory_limit_bytes = 0;  // per rank; of the largest device
};

struct SearchProblem {
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  int64_t ranks = 0;               // devices to use
  int64_t memory_limit_bytes = 0;  // per rank
  Precision precision = Precision::fp32;
  Training training;
  SearchBounds bounds;
  SearchBounds own_bounds;        // those of them that the framework's name means: no remedy changes them
  std::vector<BoundWords> meant;  // bounds on what a layout must have, as --order on one with a pipeline
  Overlaps overlaps;
  SelectiveRecompute selective;
  Execution execution;  // of the framework that is to run the plan
  // What bounds the search: a framework, or several of which one must run the layout. Without any, the
  // layouts are all that divide the model and the batch.
  std::shared_ptr<const frameworks::Framework> framework;
  std::vector<const frameworks::Framework*> any_of;  // read where `framework` is null
  /// Layouts that this one runs are of no interest: another search has them.
  std::shared_ptr<const frameworks::Framework> apart_from;
  std::vector<Layout> known;   // somebody has them: nothing slower is an answer, where they fit
  double time_limit_s = 0.0;   // 0: none
  double gap = 0.0;            // nothing is wanted that is faster than the best by at most that share
  int look_every = 8;          // nodes between two looks at the clock
  int most_kinds = 5;          // of tensor, context, pipeline, data and expert parallelism that a layout has
  bool from_rows = true;       // schedules that the framework takes as files of rows alone, too
  bool fits_recompute = true;  // full recompute of as few layers as memory asks for, too
  bool near_misses = true;     // tell which layouts fell to memory by how much, even where others fit
  int threads = 1;
  /// One with a gap: else the result depends on the order in which threads find layouts.
  size_t searching_threads() const { return gap > 0.0 ? 1 : size_t(std::max(1, threads)); }
  const CostSource* cost = nullptr;  // of the first group
  std::vector<DevicePool> pools;     // by group of a mixed cluster; empty where all devices are alike

  /// Gives a layout what all of this problem's layouts have in common.
  void set_job(Layout& layout) const {
    layout.precision = precision;
    layout.selective = selective;
    layout.training = training;
    layout.execution = execution;
  }
  /// The overlaps that a layout of these degrees has.
  void set_overlaps(Layout& layout) const {
    layout.overlap_gradient_reduce = overlaps.gradient_reduce;
    layout.overlap_parameter_gather = overlaps.parameter_gather;
    layout.overlap_transfer = overlaps.transfer;
    layout.overlap_tensor =
        overlaps.tensor && layout.tensor > 1 &&
        (layout.sequence_parallel || (framework && framework->abilities.overlap_all_reduce));
    layout.overlap_exchange = overlaps.exchange && layout.expert > 1;
  }
  /// Why none of its frameworks takes something; nothing where one does. `rule`: of one framework.
  template <class Rule>
  auto refused(Rule&& rule) const {
    if (framework) return rule(*framework);
    decltype(rule(*framework)) last{};
    for (const frameworks::Framework* one : any_of)
      if (last = rule(*one); !last) break;
    return last;
  }
  /// Those that take something which its space has. `refuses`: a rule of one framework.
  template <class Rule>
  Runners runners(Rule&& refuses) const {
    if (any_of.empty()) return 1;
    Runners runners = 0;
    for (size_t f = 0; f < any_of.size(); ++f)
      if (!refuses(*any_of[f])) runners |= Runners{1} << f;
    if (apart_from && !refuses(*apart_from)) runners |= kApart;
    return runners;
  }
  /// Whether one of its frameworks runs the whole layout, which its space has; true without several.
  bool is_supported(const Layout& layout) const;
  size_t pool_count() const { return std::max<size_t>(1, pools.size()); }
  const CostSource& source(size_t pool) const { return pools.empty() ? *cost : *pools[pool].cost; }
  int64_t limit_bytes(size_t pool) const {
    return pools.empty() ? memory_limit_bytes : pools[pool].memory_limit_bytes;
  }
};

/// The problem with the time that is left of a limit since `start_s`; 0: no limit.
SearchProblem with_time_left(SearchProblem problem, double limit_s, double start_s);

/// Groups of the cluster in which the devices of each pipeline rank lie, as bits; all 1 where devices are
/// alike.
using PoolMask = uint32_t;
std::vector<PoolMask> pools_of_ranks(const SearchProblem& problem, const Layout& layout);
/// What the tensors of each pipeline rank may use: of the smallest device among its own, less NCCL's buffers.
std::vector<int64_t> limits_of_ranks(const SearchProblem& problem, const Layout& layout);
/// By how many bytes the fullest rank exceeds its limit; negative where all fit.
int64_t excess_bytes(const std::vector<int64_t>& peaks, const std::vector<int64_t>& limits);

}  // namespace mpt::planner
