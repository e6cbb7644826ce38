// SPDX-License-Identifier: Apache-2.0
#pragma once

// NcclWorld: one rank per GPU, in one process or several. NCCL moves the data, each call in the calling
// thread's stream. Groups form over a host world, which passes NCCL's ids and reports failures.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime {

/// NCCL's id of a host: ranks with equal ids share a host.
std::string nccl_host();

/// `devices`: those of control.local_ranks(), in that order, on `host`. A wait of these devices ends with a
/// CommunicationError if a rank fails, NCCL reports an error, or `timeout` has passed.
std::unique_ptr<World> make_nccl_world(World& control, const std::vector<cuda::StreamDevice*>& devices,
                                       std::chrono::milliseconds timeout,
                                       const std::string& host = nccl_host());

}  // namespace mpt::runtime
