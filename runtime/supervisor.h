// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace mpt::runtime {

/// One try at a run.
struct Attempt {
  bool restarted = false;
  /// Set by the run when training is over: what fails after that, such as a report on a full disk, is told
  /// and not tried again.
  std::atomic<bool>& has_trained;
};

/// Runs `attempt` in a child process, and again after a pause when it dies or fails, at most `restarts` more
/// times. Wrong input and interruption are final. SIGINT, SIGTERM and SIGHUP are passed on once, and nothing
/// is started after them; another one a second later kills the child. Returns the last exit code.
/// `first_pause_s` doubles with each restart, up to a minute.
int run_supervised(int64_t restarts, const std::function<int(const Attempt&)>& attempt,
                   double first_pause_s = 1.0);

}  // namespace mpt::runtime
