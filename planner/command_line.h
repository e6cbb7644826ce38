// SPDX-License-Identifier: Apache-2.0
#pragma once

// mpt-plan's options, and the search problem that they describe.

#include <optional>
#include <string>
#include <vector>

#include "planner/search/problem.h"
#include "profiler/hardware/profile.h"

namespace CLI {
class App;
}

namespace mpt::planner {

struct PlanOptions {
  std::string model, cluster, profile, output, report, memory, precision, from;
  int64_t global_batch = 0, sequence = 0, ranks = 0, top = 5;
  std::vector<std::string> tensor, context, pipeline, data, expert, expert_tensor, chunks, micro_batch, zero;
  std::vector<std::string> schedules, recomputes, context_methods, orders, sequence_parallel, offload, overlaps;
  double time_limit_s = 0.0;
  bool json = false;
};

void declare(CLI::App& app, PlanOptions& options);

/// Everything that a search needs to stay alive.
struct PreparedSearch {
  std::optional<profiler::Profile> profile;
  SearchProblem problem;
  std::unique_ptr<CostSource> cost;
};
/// Reads the files that the options name and checks them against each other. Throws UserError.
std::unique_ptr<PreparedSearch> prepare(const PlanOptions& options);

}  // namespace mpt::planner
