// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timed: a communicator that adds up the durations of its calls, with waits for other ranks.

#include <atomic>
#include <memory>

#include "base/clock.h"
#include "runtime/comm/communicator.h"

namespace mpt::runtime {

/// Seconds so far. Several communicators, each in a different lane, may share one.
using CallTime = std::atomic<double>;

/// Adds the seconds between its construction and destruction.
class Stopwatch {
 public:
  explicit Stopwatch(CallTime& time) : time_(time), start_s_(now_s()) {}
  ~Stopwatch() { time_.fetch_add(now_s() - start_s_, std::memory_order_relaxed); }
  Stopwatch(const Stopwatch&) = delete;

 private:
  CallTime& time_;
  const double start_s_;
};

/// Is notified of each call.
class CallMeter {
 public:
  virtual ~CallMeter() = default;
  virtual void begin() = 0;
  virtual void end() = 0;  // not called if the call threw
};

/// `time` must outlive the communicator. Several may measure calls of one `inner`.
std::unique_ptr<Communicator> timed(std::shared_ptr<Communicator> inner, CallTime& time);
std::unique_ptr<Communicator> timed(std::shared_ptr<Communicator> inner, std::shared_ptr<CallMeter> meter);

}  // namespace mpt::runtime
