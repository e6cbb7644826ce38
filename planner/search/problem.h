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

/// Values a degree may take; empty is free.
struct SpaceBounds {
  std::vector<int64_t> tensor, pipeline, data, chunks, micro_batch;
  std::vector<std::string> schedules;
  std::vector<Recompute> recomputes;
};

struct SearchProblem {
  ModelSpec model;
  ClusterSpec cluster;
  Workload workload;
  int64_t ranks = 0;               // devices to use
  int64_t memory_limit_bytes = 0;  // per rank
  Precision precision = Precision::fp32;
  SpaceBounds bounds;
  const CostSource* cost = nullptr;
};

}  // namespace mpt::planner
