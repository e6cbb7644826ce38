// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepMonitor: what a person and a script see of a run while it goes on: a live line in a terminal, a line
// now and then elsewhere, and one JSON object per step in a file.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "core/plan.h"
#include "reports/run_result.h"

namespace mpt::runtime {

class StepMonitor {
 public:
  /// `log` may be empty; with `append` it is continued. Throws UserError if it cannot be written.
  StepMonitor(const Plan& plan, int64_t steps, const std::filesystem::path& log, bool quiet, bool append);
  ~StepMonitor();

  void on_step(const reports::StepRecord& record);

 private:
  std::string line(const reports::StepRecord& record) const;

  int64_t steps_;
  bool quiet_, terminal_;
  std::FILE* log_ = nullptr;
};

}  // namespace mpt::runtime
