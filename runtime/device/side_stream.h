// SPDX-License-Identifier: Apache-2.0
#pragma once

// SideStream: work of a rank that overlaps with its compute. The work runs in the order of posting, on a
// thread with its own device stream. Collectives posted in the same order on every rank match each other.

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "runtime/comm/timed.h"
#include "runtime/device/device.h"

namespace mpt::runtime {

class SideStream {
 public:
  using OnFailure = std::function<void(const std::string& work, const std::string& what)>;
  using Ticket = int64_t;
  static constexpr Ticket kNothing = -1;  // complete from the beginning

  /// `on_failure` is called with the first failure, from the stream's thread, so that it can wake other
  /// ranks.
  SideStream(Device& device, OnFailure on_failure);
  /// Waits for all posted work.
  ~SideStream();

  /// `work` runs after all earlier posts, and after the calling thread's earlier calls of the device.
  Ticket post(const std::string& name, std::function<void()> work);
  /// Whether post() returns only after the work has been submitted to the device. To be called between posts.
  void set_in_turn(bool in_turn) { in_turn_ = in_turn; }
  /// Returns when the ticket's work and all earlier posts are complete or ordered before the calling thread's
  /// next calls of the device. Rethrows the first failure; posts after a failure were skipped.
  void await(Ticket ticket);

 private:
  struct Task {
    std::string name;
    std::function<void()> work;
  };
  // The marks of a ticket: the point of its caller, and its end. Later tickets reuse them. A thread that
  // awaits an old ticket then waits for a later one, which implies the old one.
  static constexpr int64_t kMarked = 256;
  static int64_t posted_mark(Ticket t) { return t % kMarked * 2; }
  static int64_t end_mark(Ticket t) { return t % kMarked * 2 + 1; }

  void serve();
  void run(const Task& task, Ticket ticket);

  const OnFailure on_failure_;
  const std::unique_ptr<WorkMarks> marks_;  // null on devices that complete work in the call
  std::mutex mutex_;
  std::condition_variable posted_changed_;  // wakes the stream's thread
  std::condition_variable done_changed_;    // wakes callers
  std::deque<Task> tasks_;
  Ticket posted_ = 0, done_ = 0;  // numbers of tickets
  bool closing_ = false, in_turn_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// The stream of work that overlaps with compute, and the counter of seconds spent waiting for it. Null: work
/// runs in place.
struct BesideCompute {
  SideStream* stream = nullptr;
  CallTime* waited = nullptr;
};

/// Posted work that is complete after wait(), and at the latest in the destructor: its memory must stay until
/// then.
class Posted {
 public:
  Posted() = default;
  Posted(const BesideCompute& beside, const char* what, std::function<void()> work);
  Posted(Posted&& other) noexcept : beside_(other.beside_), ticket_(other.take()) {}
  /// Drops the old ticket without a wait: the new work is later in the stream, so waiting for it is enough.
  Posted& operator=(Posted&& other) noexcept {
    beside_ = other.beside_;
    ticket_ = other.take();
    return *this;
  }
  ~Posted();

  void wait();

 private:
  SideStream::Ticket take() { return std::exchange(ticket_, SideStream::kNothing); }

  BesideCompute beside_;
  SideStream::Ticket ticket_ = SideStream::kNothing;
};

}  // namespace mpt::runtime
