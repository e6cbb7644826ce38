// SPDX-License-Identifier: Apache-2.0
#pragma once

// Functions that the exports to Megatron-LM and Megatron-Bridge share.

#include <string>
#include <vector>

#include "core/plan.h"

namespace mpt::frameworks {

/// The plan's recompute in Megatron-LM's options; Megatron-Bridge has the same fields.
struct MegatronRecompute {
  std::string granularity, method;  // empty: none
  int64_t layers = 0;
  std::vector<std::string> modules;  // of selective recompute; empty: the attention core
};
MegatronRecompute megatron_recompute(const Plan& plan, std::vector<std::string>& warnings);
/// "Ettt|tttt|tttL": what each virtual stage holds, in model order.
std::string megatron_stages(const Plan& plan);
/// Adds what Megatron-LM and what builds on it cannot do: schedules, orders, groups of devices.
void add_megatron_warnings(const Plan& plan, std::vector<std::string>& warnings);

}  // namespace mpt::frameworks
