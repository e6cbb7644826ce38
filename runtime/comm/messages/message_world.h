// SPDX-License-Identifier: Apache-2.0
#pragma once

// A world of several processes, with one or more ranks each. Collectives are made of messages. Messages
// between ranks of one process stay in it, others go over a wire. Reductions run in rank order, as in
// ThreadWorld, so results are bitwise the same. If a process is lost before its last frame, the run ends
// everywhere.

#include <chrono>
#include <memory>

#include "runtime/comm/messages/wire.h"
#include "runtime/comm/world.h"

namespace mpt::runtime {

/// `ranks` of the run, in equal numbers per process and in order of processes.
std::unique_ptr<World> make_message_world(std::unique_ptr<Wire> wire, int ranks,
                                          std::chrono::milliseconds timeout);

/// Throws UserError unless `ranks` divide evenly over `processes`, which `launcher` started.
void check_processes(const std::string& launcher, int processes, int ranks);

/// Throws that these processes have another plan than this one.
[[noreturn]] void throw_other_plan(const std::string& processes);

}  // namespace mpt::runtime
