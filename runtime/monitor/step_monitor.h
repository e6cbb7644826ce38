// SPDX-License-Identifier: Apache-2.0
#pragma once

// StepMonitor: shows a run's progress: a live line in a terminal, otherwise occasional lines, and one JSON
// object per step in a file.

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/plan.h"
#include "reports/run_result.h"
#include "runtime/monitor/log_file.h"
#include "runtime/monitor/step_curves.h"

namespace mpt::runtime {

struct MonitorOptions {
  int64_t steps = 0;
  std::filesystem::path log{}, tensorboard{}, metrics{};  // empty: none
  int64_t done = 0;                                       // steps of earlier runs; their log continues
  bool quiet = false;
  bool watch = false;  // a table of ranks, redrawn with each step
};

/// Decides which steps print a line. The first three and the last do, then every tenth, at most one a second.
/// After five seconds without a line the next step prints one.
class LinePacer {
 public:
  bool is_due(int64_t step, int64_t last_step, double now_s) {
    constexpr int kFirst = 3;
    constexpr double kMostSilence_s = 5.0, kLeastSilence_s = 1.0;
    const double silence_s = now_s - printed_s_;
    const bool due = seen_++ < kFirst || step == last_step || silence_s >= kMostSilence_s ||
                     (step % 10 == 0 && silence_s >= kLeastSilence_s);
    if (due) printed_s_ = now_s;
    return due;
  }

 private:
  int seen_ = 0;
  double printed_s_ = 0.0;
};

class StepMonitor {
 public:
  /// Throws UserError if the log or the curves cannot be written.
  StepMonitor(const Plan& plan, const MonitorOptions& options);
  ~StepMonitor();

  void on_step(const reports::StepRecord& record);
  /// Prints a text between the lines of steps. Another thread may call it.
  void say(const std::string& text);
  /// Why the log, the curves or the metrics lack something, by their path in the options; empty if none does.
  std::map<std::filesystem::path, std::string> failures() const;

 private:
  std::string line(const reports::StepRecord& record) const;
  /// Tokens and epochs so far, and the time left.
  std::string progress(const reports::StepRecord& record) const;
  std::string rank_table(const reports::StepRecord& record) const;
  std::string gpu_table(const reports::StepRecord& record) const;
  void write_metrics(const reports::StepRecord& record);
  void write_row(const reports::StepRecord& record);
  void draw(const reports::StepRecord& record);
  void print(const reports::StepRecord& record);
  static void add(LogFile& file, const std::string& record);

  MonitorOptions options_;
  std::mutex printing_;
  bool terminal_;
  std::vector<std::string> hosts_;           // of the ranks
  std::vector<reports::RankRecord> before_;  // of the step drawn last
  std::vector<double> recent_s_;             // of the last steps
  std::string metrics_failure_;
  int drawn_lines_ = 0;
  LinePacer pacer_;
  std::unique_ptr<LogFile> log_, curves_;
};

}  // namespace mpt::runtime
