// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "runtime/execute/lanes.h"

namespace mpt::runtime {

/// Streams as threads, made once and kept. Only streams that `program` uses on `rank` get one. `on_failure`
/// is called with the first failure of any stream, from its thread, so that it can wake ranks that wait for
/// this one.
std::unique_ptr<Lanes> make_thread_lanes(
    const StepProgram& program, int rank,
    std::function<void(const std::string& instruction, const std::string& what)> on_failure);

}  // namespace mpt::runtime
