// SPDX-License-Identifier: Apache-2.0
#pragma once

// MarkMeter: durations of a communicator's calls on an asynchronous device. There the host's time of a call
// tells nothing.

#include <cstdint>
#include <memory>

#include "runtime/comm/timed.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

class MarkMeter final : public CallMeter {
 public:
  /// The number of timed calls between two collections. Further calls count with the mean of these.
  static constexpr int64_t kMarked = 512;

  /// `marks` have kMarked pieces and belong to these calls only. `time` must outlive the meter.
  MarkMeter(std::unique_ptr<WorkMarks> marks, CallTime& time);

  void begin() override;
  void end() override;
  /// Adds the durations of the calls since the last collection, which must be complete.
  void collect();

 private:
  const std::unique_ptr<WorkMarks> marks_;
  CallTime& time_;
  int64_t calls_ = 0;
};

}  // namespace mpt::runtime
