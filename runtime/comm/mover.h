// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mover: how ranks of one process access each other's buffers: by the processor in host memory, or by a
// device's own copies and kernels.

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/comm/communicator.h"

namespace mpt::runtime {

class Mover {
 public:
  virtual ~Mover() = default;

  virtual void move(void* to, const void* from, int64_t bytes) = 0;
  /// Like reduce_in_order() in runtime/comm/reduction.h.
  virtual void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts,
                      int64_t begin, int64_t end, void* to) = 0;
  /// Returns when all work of this thread is complete and visible to other ranks.
  virtual void finish() = 0;
};

/// For host memory; it has no state.
Mover& host_mover();

/// A group of one: collectives are identities, and there is no peer. `mover` must outlive it.
std::unique_ptr<Communicator> make_single_communicator(Mover& mover = host_mover());

}  // namespace mpt::runtime
