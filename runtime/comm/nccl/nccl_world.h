// SPDX-License-Identifier: Apache-2.0
#pragma once

// NcclWorld: one rank per GPU, in this process or in many; NCCL moves the data, each call in the calling
// thread's stream. Groups come together over a host world, which passes NCCL's ids and tells of failures.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/device/cuda/stream_device.h"

namespace mpt::runtime {

/// What NCCL takes for a host: ranks for which it is the same share one.
std::string nccl_host();

/// `devices`: those of control.local_ranks(), in that order, on `host`. Waits of these devices end with a
/// CommunicationError when a rank fails, NCCL reports an error, or `timeout` has passed.
std::unique_ptr<World> make_nccl_world(World& control, const std::vector<cuda::StreamDevice*>& devices,
                                       std::chrono::milliseconds timeout,
                                       const std::string& host = nccl_host());

}  // namespace mpt::runtime
