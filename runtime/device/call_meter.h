// SPDX-License-Identifier: Apache-2.0
#pragma once

// MarkMeter: how long calls of a communicator take on a device that works behind its callers, where the
// host's time of a call tells nothing.

#include <cstdint>
#include <memory>

#include "runtime/comm/timed.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

class MarkMeter final : public CallMeter {
 public:
  /// Calls between two collections of which the times are known: beyond them the mean of these counts.
  static constexpr int64_t kMarked = 512;

  /// `marks` are of kMarked pieces, for these calls alone. `time` must outlive the meter.
  MarkMeter(std::unique_ptr<WorkMarks> marks, CallTime& time);

  void begin() override;
  void end() override;
  /// Adds the time of the calls since the last collection. They are done.
  void collect();

 private:
  const std::unique_ptr<WorkMarks> marks_;
  CallTime& time_;
  int64_t calls_ = 0;
};

}  // namespace mpt::runtime
