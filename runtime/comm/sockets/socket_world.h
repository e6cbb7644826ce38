// SPDX-License-Identifier: Apache-2.0
#pragma once

// A message world over TCP. Processes on one or several hosts meet at the master's address, refuse each other
// if their plans differ, and connect every pair.

#include <atomic>
#include <chrono>

#include "runtime/comm/sockets/launch.h"
#include "runtime/comm/world.h"

namespace mpt::runtime {

struct SocketWorldOptions {
  Launch launch;
  int ranks = 1;            // of the run, in equal numbers per process, in order
  std::string plan_digest;  // 16 characters; must be the same everywhere
  std::chrono::milliseconds timeout{300'000};
  const std::atomic<bool>* stop = nullptr;  // becomes true when the user asks the program to stop
};

/// Returns when all processes are connected. Throws UserError if the ranks do not divide or the plans differ,
/// RunError if the others do not come within the timeout, StopRequested.
std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options);

}  // namespace mpt::runtime
