// SPDX-License-Identifier: Apache-2.0
#pragma once

// Timed: a communicator that adds up how long its calls take, waiting for others included.

#include <atomic>
#include <memory>

#include "runtime/comm/communicator.h"

namespace mpt::runtime {

/// Seconds so far; several communicators, each in a lane of its own, may share one.
using CallTime = std::atomic<double>;

/// `time` must outlive the communicator.
std::unique_ptr<Communicator> timed(std::unique_ptr<Communicator> inner, CallTime& time);

}  // namespace mpt::runtime
