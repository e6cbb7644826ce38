// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepMonitor: shows a run's progress: a live line in a terminal, otherwise occasional lines, and one JSON
// object per step in a file.

#include <filesystem>
#include <memory>
#include <string>

#include "core/plan.h"
#include "reports/run_result.h"
#include "runtime/monitor/gpu_load.h"
#include "runtime/monitor/line_pacer.h"
#include "runtime/monitor/log_file.h"

namespace mpt::runtime {

struct MonitorOptions {
  int64_t steps = 0;
  std::filesystem::path log;  // empty: none
  bool append = false;        // continues the log
  bool quiet = false;
  bool watch = false;  // a table of ranks, redrawn with each step
  bool gpus = false;   // the run is on GPUs, so their load is watched and logged
};

class StepMonitor {
 public:
  /// Throws UserError if the log cannot be written.
  StepMonitor(const Plan& plan, const MonitorOptions& options);
  ~StepMonitor();

  void on_step(const reports::StepRecord& record);
  /// The lines that could not be written to the log; empty if all were.
  std::string failure() const;

 private:
  std::string line(const reports::StepRecord& record) const;
  std::string time_left(const reports::StepRecord& record) const;
  std::string rank_table(const reports::StepRecord& record) const;
  std::string gpu_table() const;
  void write_row(const reports::StepRecord& record);
  void draw(const reports::StepRecord& record);
  void print(const reports::StepRecord& record);
  void add_to_log(const std::string& line);

  MonitorOptions options_;
  bool terminal_;
  std::unique_ptr<GpuMonitor> gpus_;
  std::vector<GpuLoad> loads_;  // as of the newest step
  int drawn_lines_ = 0;
  LinePacer pacer_;
  std::unique_ptr<LogFile> log_;
};

}  // namespace mpt::runtime
