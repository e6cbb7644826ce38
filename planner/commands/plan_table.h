// SPDX-License-Identifier: Apache-2.0
#pragma once

// The columns that compare and sweep have in common: one plan a row.

#include <optional>
#include <string>
#include <vector>

#include "planner/api.h"
#include "planner/commands/command_line.h"
#include "reports/table.h"

namespace mpt::planner {

/// A plan of a comparison, or why there is none.
struct Compared {
  std::string name;
  std::optional<Plan> plan;  // nothing: no layout fits
  std::string why;
};

/// Answers by the names of what was asked.
std::vector<Compared> named(const std::vector<std::string>& names, std::vector<PlanOrReason> answers);

/// The first that has a plan; null where none has.
const Plan* first_plan(const std::vector<Compared>& compared);

/// Layout, GPUs, step time, tokens/s, per GPU, MFU, idle time and memory; days, GPU-hours and cost where a
/// training was asked for. `first`: the column of names.
std::vector<reports::Column> plan_columns(const reports::Column& first, const std::vector<Compared>& compared,
                                          const CostOptions& cost);
/// A row of those columns, "-" where there is no plan.
std::vector<std::string> plan_row(const Compared& compared, const CostOptions& cost);

/// The job of a table: "llama3-8b in bf16, 32 sequences of 4096 tokens per step, for megatron-core". Batch
/// and framework are told where all rows share them.
std::string describe_job(const Plan& plan, bool same_workload, bool same_framework);
/// The assumptions behind the days of a table; empty where none were asked for.
std::string describe_days(const std::vector<Compared>& compared, const CostOptions& cost);

}  // namespace mpt::planner
