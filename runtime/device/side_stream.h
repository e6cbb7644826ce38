// SPDX-License-Identifier: Apache-2.0
#pragma once

// SideStream: work of a rank that runs beside its compute, one piece behind the other in the order of
// posting, on a thread (and so a device stream) of its own. Collectives posted in the same order on every
// rank meet each other.

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
  static constexpr Ticket kNothing = -1;  // done from the beginning

  /// `on_failure` is called with the first failure, from the thread, so that it can wake other ranks.
  SideStream(Device& device, OnFailure on_failure);
  /// Returns when all that was posted is done.
  ~SideStream();
  SideStream(const SideStream&) = delete;

  /// `work` runs behind what was posted before, and behind what the calling thread asked the device for.
  Ticket post(const std::string& name, std::function<void()> work);
  /// Whether post() returns only when the device has been asked for the work. Between posts.
  void set_in_turn(bool in_turn) { in_turn_ = in_turn; }
  /// Returns when the ticket's work is done, and all posted before; what the calling thread asks the device
  /// for next comes behind it. Rethrows the first failure; what was posted after it was skipped.
  void await(Ticket ticket);

 private:
  struct Task {
    std::string name;
    std::function<void()> work;
  };
  // Marks of a ticket: where its caller was, and its end. Later tickets take them again, and who awaits one
  // then awaits a later one, which is no less.
  static constexpr int64_t kMarked = 256;
  static int64_t posted_mark(Ticket t) { return t % kMarked * 2; }
  static int64_t end_mark(Ticket t) { return t % kMarked * 2 + 1; }

  void serve();
  void run(const Task& task, Ticket ticket);

  const OnFailure on_failure_;
  const std::unique_ptr<WorkMarks> marks_;  // null on devices that are done when a call returns
  std::mutex mutex_;
  std::condition_variable posted_changed_;  // what the thread waits for
  std::condition_variable done_changed_;    // what callers wait for
  std::deque<Task> tasks_;
  Ticket posted_ = 0, done_ = 0;  // how many
  bool closing_ = false, in_turn_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

/// Where work runs beside compute, and who gets the seconds of waiting for it; null: it is done in place.
struct BesideCompute {
  SideStream* stream = nullptr;
  CallTime* waited = nullptr;
};

/// Work beside compute that is done when wait() returns, and before the end of this: its memory must stay.
class Posted {
 public:
  Posted() = default;
  Posted(const BesideCompute& beside, const char* what, std::function<void()> work);
  Posted(Posted&& other) noexcept : beside_(other.beside_), ticket_(other.take()) {}
  /// What it stood for before is no longer waited for by it: later work of the stream stands for that.
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
