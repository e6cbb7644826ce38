// SPDX-License-Identifier: Apache-2.0
#pragma once

// ThreadWorld: ranks are threads of this process. Their communicators read each other's buffers directly,
// each rank through its mover. It is the default transport on one machine. Reductions run in rank order, so
// every rank gets the same bits.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/mover.h"
#include "runtime/comm/world.h"

namespace mpt::runtime {

class ThreadWorld final : public World {
 public:
  /// `timeout` bounds each single wait: a rank that computes longer than this between two collectives counts
  /// as hung. `movers` [ranks] must outlive the communicators; none: buffers are in host memory.
  explicit ThreadWorld(std::chrono::milliseconds timeout, int ranks = 1, std::vector<Mover*> movers = {});
  ~ThreadWorld() override;

  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name) override;
  void abort(const std::string& reason) override;
  bool aborted() const override;
  std::vector<int> local_ranks() const override;

  struct State;  // shared with the communicators, which may outlive the world

 private:
  int ranks_;
  std::vector<Mover*> movers_;
  std::shared_ptr<State> state_;
};

}  // namespace mpt::runtime
