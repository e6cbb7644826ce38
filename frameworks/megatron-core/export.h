// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the exports to Megatron-LM and to what builds on it share.

#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::frameworks {

/// How Megatron-LM's recompute options say what the plan does; Megatron-Bridge has the same fields.
struct MegatronRecompute {
  std::string granularity, method;  // empty: none
  int64_t layers = 0;
  std::vector<std::string> modules;  // of selective recompute; none: what is usual, the attention core
};
MegatronRecompute megatron_recompute(const Plan& plan, std::vector<std::string>& warnings);
/// "Ettt|tttt|tttL": what each virtual stage holds, in model order.
std::string megatron_stages(const Plan& plan);
/// Adds what Megatron-LM and what builds on it cannot do: schedules, orders, groups of devices.
void add_megatron_warnings(const Plan& plan, std::vector<std::string>& warnings);

}  // namespace mpt::frameworks
