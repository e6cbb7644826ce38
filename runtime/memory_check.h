// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whether the memory of this machine is enough for the ranks that a run would have on its CPUs.

#include <cstdint>
#include <optional>

#include "core/plan.h"
#include "runtime/comm/sockets/launch.h"

namespace mpt::runtime {

/// Of the machine, or of the container that this process runs in.
int64_t machine_memory_bytes();

/// Peaks of the ranks of the plan that run on this machine, as mpt-run keeps tensors. Without a launcher all
/// of them do.
int64_t needed_memory_bytes(const Plan& plan, const std::optional<Launch>& launch);

/// Throws UserError if they need more than `available`. `file`: of the plan, for the message.
void check_memory(const Plan& plan, const std::optional<Launch>& launch, int64_t available,
                  const std::string& file);

}  // namespace mpt::runtime
