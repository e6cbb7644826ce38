// SPDX-License-Identifier: Apache-2.0
#pragma once

// VirtualLanes: streams of one rank whose work takes no time and moves a clock instead. An instruction that
// several ranks share is a rendezvous: every rank brings the time from which it could start, the latest
// counts.

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/execute/executor.h"

namespace mpt::test {

/// Where ranks meet. A meeting that does not come about in time throws: a program that could hang fails.
class VirtualMeeting {
 public:
  /// Returns the latest of the times that `parties` ranks bring to instruction `id`.
  double meet(InstructionId id, int parties, double ready_s);

 private:
  struct Seats {
    int arrived = 0;
    double latest_s = 0.0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<InstructionId, Seats> seats_;
};

std::unique_ptr<runtime::Lanes> make_virtual_lanes(const StepProgram& program,
                                                   const std::vector<double>& durations_s,
                                                   VirtualMeeting& meeting);

}  // namespace mpt::test
