// SPDX-License-Identifier: Apache-2.0
#pragma once

// A world of several processes, several ranks per process allowed. Collectives are made of messages: between
// ranks of one process they stay in it, others go over a wire. Reductions run in rank order, as in
// ThreadWorld, so that results are the same to the bit. A process that is lost before it said good-bye ends
// the run everywhere.

#include <chrono>
#include <memory>

#include "runtime/comm/messages/wire.h"
#include "runtime/comm/world.h"

namespace mpt::runtime {

/// `ranks` of the run; process p holds ranks / processes of them, the p-th run.
std::unique_ptr<World> make_message_world(std::unique_ptr<Wire> wire, int ranks,
                                          std::chrono::milliseconds timeout);

/// Throws UserError unless `ranks` are the same number in each of `processes`, started by `launcher`.
void check_processes(const std::string& launcher, int processes, int ranks);

/// The processes named have another plan than this one.
[[noreturn]] void throw_other_plan(const std::string& processes);

}  // namespace mpt::runtime
