// SPDX-License-Identifier: Apache-2.0
#pragma once

// What to do with a plan or a run that lies before one: commands to type, and what to try if it goes wrong.

#include <string>
#include <vector>

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::reports {

/// A framework or launcher that plans are exported to, and the frameworks whose prices and memory hold for
/// it.
struct TargetFrameworks {
  const char* target;    // of mpt-plan export --to
  const char* plan_for;  // of mpt-plan --framework
  std::vector<const char*> also;

  bool fits(const std::string& framework) const;
};
const std::vector<TargetFrameworks>& frameworks_of_targets();

struct NextStep {
  std::string title, text;
  std::string command;  // may be empty
};
std::vector<NextStep> next_steps(const Plan& plan);
std::vector<NextStep> next_steps(const Plan& plan, const RunResult& result);

}  // namespace mpt::reports
