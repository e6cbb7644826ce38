// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/device/device.h"
#include "runtime/execute/executor.h"

namespace mpt::runtime {

/// Streams as threads that are created once and kept. Only streams that `program` uses on `rank` get one.
/// `on_failure` is called with the first failure of any stream, from its thread, so that it can wake ranks
/// that wait for this one. With `marks`, one per instruction, the device runs a stream asynchronously: waits
/// are on the device, and spans are the device's. `marks` may be null. It is also a failure if the device
/// answers no call of a running instruction for `patience_s`.
std::unique_ptr<Lanes> make_thread_lanes(
    const StepProgram& program, int rank,
    std::function<void(const std::string& instruction, const std::string& what)> on_failure,
    std::unique_ptr<WorkMarks> marks = nullptr, double patience_s = 60.0);

}  // namespace mpt::runtime
