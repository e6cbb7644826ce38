// SPDX-License-Identifier: Apache-2.0
#pragma once

// How busy other programs keep this machine's cores during a run.

#include <istream>
#include <optional>

namespace mpt::runtime {

/// Seconds of all cores together since the machine started.
struct CoreTime {
  double busy_s = 0.0, idle_s = 0.0;
};

/// Parses the text of /proc/stat; nothing if it has no such line.
std::optional<CoreTime> read_core_time(std::istream& proc_stat);

class MachineLoad {
 public:
  MachineLoad();

  /// Share of the cores' time since construction that other programs took; 0 if the system does not report
  /// it.
  double others_share() const;

 private:
  std::optional<CoreTime> start_;
  double own_start_s_ = 0.0;
};

/// Share of the cores' time between two readings that was neither idle nor this program's.
double others_share(const CoreTime& start, const CoreTime& end, double own_s);

}  // namespace mpt::runtime
