// SPDX-License-Identifier: Apache-2.0
#pragma once

// SocketWorld: ranks in several processes, on one host or many, several ranks per process allowed. Processes
// meet at the master's address, refuse each other if their plans differ, and connect each with each by TCP;
// messages between ranks of one process stay in it. Reductions run in rank order, as in ThreadWorld, so that
// results are the same to the bit. A connection that ends before its process said good-bye ends the run
// everywhere.

#include <chrono>

#include "runtime/comm/sockets/launch.h"
#include "runtime/comm/world.h"

namespace mpt::runtime {

struct SocketWorldOptions {
  Launch launch;
  int ranks = 1;            // of the run; process p holds ranks / processes of them, the p-th run
  std::string plan_digest;  // 16 characters; must be the same everywhere
  std::chrono::milliseconds timeout{300'000};
};

/// Returns when all processes are connected. Throws UserError if the ranks do not divide or the plans differ,
/// RunError if the others do not come within the timeout.
std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options);

}  // namespace mpt::runtime
