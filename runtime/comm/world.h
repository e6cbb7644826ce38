// SPDX-License-Identifier: Apache-2.0
#pragma once

// World: all ranks of a run, in any process, and the groups that they form.

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace mpt::runtime {

/// `count` ranks from `first` on.
inline std::vector<int> ranks_from(int first, int count) {
  std::vector<int> ranks(static_cast<size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

class World {
 public:
  virtual ~World() = default;

  /// This rank's handle of the group `members` (world ranks, in group order; the same on every member). Name
  /// and members identify a group, so the same members may form several groups, one per lane.
  virtual std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                                     const std::string& name) = 0;

  /// Ends every wait of every rank, present and future, with a CommunicationError that carries `reason`. The
  /// first reason is kept.
  virtual void abort(const std::string& reason) = 0;
  virtual bool aborted() const = 0;
  /// The reason of an abort, if this world knows it.
  virtual std::string reason() const { return ""; }

  /// Ranks of this process.
  virtual std::vector<int> local_ranks() const = 0;
};

}  // namespace mpt::runtime
