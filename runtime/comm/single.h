// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/comm/mover.h"

namespace mpt::runtime {

/// A group of one: collectives are identities, and there is no peer to send to. `mover` outlives it.
std::unique_ptr<Communicator> make_single_communicator(Mover& mover = host_mover());

}  // namespace mpt::runtime
