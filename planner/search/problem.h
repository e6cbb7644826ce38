// SPDX-License-Identifier: Apache-2.0
#pragma once

// SearchProblem: what to plan, where, within which bounds.

#include <string>
#include <vector>

#include "core/cluster_spec.h"
#include "core/layout.h"
#include "core/model_spec.h"
#include "planner/cost/cost_source.h"

namespace mpt::planner {

/// Values a degree or switch may take; empty is free.
struct SpaceBounds {
  std::vector<int64_t> tensor, context, pipeline, data, expert, expert_tensor, chunks, micro_batch, zero;
  std::vector<std::string> schedules;
  std::vector<Recompute> recomputes;
  std::vector<ContextMethod> context_methods;
  std::vector<RankOrder> orders;
  std::vector<bool> sequence_parallel, offload;
};

/// What a layout's traffic may run beside. Each is used wherever it applies: in this cost model what runs
/// beside compute never costs more than it does alone.
struct Overlaps {
  bool gradient_reduce = false, parameter_gather = false, tensor = false, transfer = true;
};

/// The features of layouts that whoever executes the plan has. All: what GPU frameworks offer together.
struct Features {
  bool sequence_parallel = true, context_parallel = true, expert_parallel = true, zero = true, offload = true,
       rank_order = true, partial_recompute = true;
};

struct SearchProblem {
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  int64_t ranks = 0;               // devices to use
  int64_t memory_limit_bytes = 0;  // per rank
  Precision precision = Precision::fp32;
  SpaceBounds bounds;
  Overlaps overlaps;
  Features features;
  double time_limit_s = 0.0;  // 0: none
  const CostSource* cost = nullptr;
};

}  // namespace mpt::planner
