// SPDX-License-Identifier: Apache-2.0
#pragma once

// Wire: carries frames between the processes of a run. It knows nothing about ranks and groups.

#include <cstdint>
#include <functional>
#include <vector>

namespace mpt::runtime {

/// The header of every message.
struct Frame {
  uint64_t group;
  int32_t from, to;  // ranks
  int64_t bytes;

  /// Whether it is its process's last frame. Groups of ranks have numbers from kFirstGroup on.
  bool is_last() const { return group < kFirstGroup; }
  /// A bound on sizes, because another process wrote them.
  bool is_sound() const { return bytes >= 0 && bytes <= (is_last() ? kMostLastBytes : kMostBytes); }

  static constexpr uint64_t kFirstGroup = 2;
  static constexpr int64_t kMostBytes = int64_t{1} << 40, kMostLastBytes = 4096;
};

class Wire {
 public:
  virtual ~Wire() = default;

  /// Called from threads of the wire.
  using Arrived = std::function<void(const Frame& frame, std::vector<char> message)>;
  /// A process was lost before its last frame.
  using Lost = std::function<void(int process)>;

  virtual int process() const = 0;
  virtual int processes() const = 0;
  /// To be called once, before the first send.
  virtual void start(Arrived arrived, Lost lost) = 0;
  /// Returns when `data` may be changed. Frames from one thread to one process arrive in order. Throws
  /// RunError if the process cannot be reached.
  virtual void send(int process, const Frame& frame, const void* data) = 0;
  /// Waits for the last frame of every other process, and ends the wire's threads. With `cut` it does not
  /// wait for frames that may never come.
  virtual void close(bool cut) = 0;
};

}  // namespace mpt::runtime
