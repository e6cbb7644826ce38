// SPDX-License-Identifier: Apache-2.0
#pragma once

// Requests by signal to stop. Programs that do long work check for one and end with their results so far.

#include <atomic>

namespace mpt {

/// The effect of a signal a second or more after the first one.
enum class RepeatedSignal {
  ends,    // the program ends at once, as a person expects
  ignored  // no effect: a parent process passes signals on, and decides
};

/// From now on the first SIGINT, SIGTERM or SIGHUP sets stop_requested(). Launchers send the same signal to a
/// process and to its group, so a repetition within a second is ignored. SIGHUP stays ignored under nohup.
void catch_signals(RepeatedSignal repeated = RepeatedSignal::ends);
const std::atomic<bool>& stop_requested();

/// Until catch_signals() is called, the same signals print `last_words` to stderr and end the program with
/// kExitInterrupted: there is nothing to save yet.
void end_on_signals(const char* last_words);

}  // namespace mpt
