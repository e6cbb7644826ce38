// SPDX-License-Identifier: Apache-2.0
#pragma once

// A message world over TCP. Processes on one or several hosts meet at the master's address, refuse each other
// if their plans differ, and connect every pair.

#include <atomic>
#include <chrono>

#include "runtime/comm/messages/message_communicator.h"
#include "runtime/comm/sockets/launch.h"
#include "runtime/comm/sockets/socket.h"

namespace mpt::runtime {

struct SocketWorldOptions {
  Launch launch;
  int ranks = 1;            // of the run, in equal numbers per process, in order
  std::string plan_digest;  // 16 characters; must be the same everywhere
  std::chrono::milliseconds timeout{300'000};
  const std::atomic<bool>* stop = nullptr;  // becomes true when the user asks the program to stop
};

/// The header of every message between processes.
struct Frame {
  uint64_t group;
  int32_t from, to;  // ranks
  int64_t bytes;

  /// Whether it is its process's last frame. Groups of ranks have numbers from kFirstGroup on.
  bool is_last() const { return group < kFirstGroup; }
  /// A bound on sizes, because another process wrote them.
  bool is_sound() const { return bytes >= 0 && bytes <= (is_last() ? kMostLastBytes : kMostBytes); }

  // Last frames: the run is aborted, for a reason; or it has ended.
  static constexpr uint64_t kAbort = 0, kGoodBye = 1;
  static constexpr uint64_t kFirstGroup = 2;
  static constexpr int64_t kMostBytes = int64_t{1} << 40, kMostLastBytes = 4096;
};

/// A connection to every other process of the run, by process; this one's is empty. Throws like
/// make_socket_world().
std::vector<Socket> meet_processes(const SocketWorldOptions& options);

/// Returns when all processes are connected. Throws UserError if the ranks do not divide or the plans differ,
/// RunError if the others do not come within the timeout, StopRequested.
std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options);

}  // namespace mpt::runtime
