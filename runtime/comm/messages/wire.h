// SPDX-License-Identifier: Apache-2.0
#pragma once

// Wire: carries frames between the processes of a run. It knows nothing of ranks and groups.

#include <cstdint>
#include <functional>
#include <vector>

namespace mpt::runtime {

/// In front of every message.
struct Frame {
  uint64_t group;
  int32_t from, to;  // ranks
  int64_t bytes;

  /// Nothing follows from its process. Groups of ranks have numbers from kFirstGroup on.
  bool is_last() const { return group < kFirstGroup; }
  /// What comes from elsewhere is trusted no further.
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
  /// Once, before anything is sent.
  virtual void start(Arrived arrived, Lost lost) = 0;
  /// Returns when `data` may be changed. Frames to one process from one thread arrive in order. Throws
  /// RunError if the process cannot be reached.
  virtual void send(int process, const Frame& frame, const void* data) = 0;
  /// Waits for the last frame of every other process, and ends the wire's threads; with `cut`, without
  /// waiting for those who may never.
  virtual void close(bool cut) = 0;
};

}  // namespace mpt::runtime
