// SPDX-License-Identifier: Apache-2.0
#pragma once

// ThreadWorld: ranks are threads of this process; their communicators read each other's buffers directly. The
// default transport on one machine. Reductions run in rank order, so every rank gets the same bits.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace mpt::runtime {

class ThreadWorld {
 public:
  /// `timeout` bounds every single wait; a rank that computes longer than this between two collectives is
  /// taken for hung.
  explicit ThreadWorld(std::chrono::milliseconds timeout);
  ~ThreadWorld();

  /// This rank's handle of the group `members` (world ranks, in group order; the same on every member).
  /// Groups are told apart by `name` and members, so the same members may form several groups, one per lane.
  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name);

  /// Ends every wait, present and future, with a CommunicationError that carries `reason`. The first reason
  /// stays.
  void abort(const std::string& reason);
  bool aborted() const;

  struct State;  // shared with the communicators, which may outlive the world

 private:
  std::shared_ptr<State> state_;
};

}  // namespace mpt::runtime
