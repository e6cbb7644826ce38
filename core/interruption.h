// SPDX-License-Identifier: Apache-2.0
#pragma once

// A person's wish to stop: programs that do long work look at it and end with what they have.

#include <atomic>

namespace mpt {

/// From now on the first SIGINT or SIGTERM sets stop_requested(); the second ends the program at once, as a
/// person expects.
void catch_signals();
const std::atomic<bool>& stop_requested();

}  // namespace mpt
