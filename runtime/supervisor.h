// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace mpt::runtime {

/// Runs `attempt` in a child process, and again when it dies or fails, at most `restarts` more times; its
/// argument says whether this is a restart. SIGINT and SIGTERM are passed on. Returns the last exit code.
/// Wrong input and interruption are final.
int run_supervised(int64_t restarts, const std::function<int(bool restarted)>& attempt);

}  // namespace mpt::runtime
