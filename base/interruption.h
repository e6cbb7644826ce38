// SPDX-License-Identifier: Apache-2.0
#pragma once

// A person's wish to stop: programs that do long work look at it and end with what they have.

#include <atomic>

namespace mpt {

/// The meaning of a signal a second or more after the first one.
enum class RepeatedSignal {
  ends,    // the program ends at once, as a person expects
  ignored  // nothing: a parent process passes signals on, and decides
};

/// From now on the first SIGINT, SIGTERM or SIGHUP sets stop_requested(). Launchers tell the same wish to a
/// process and to its group, so a repetition within a second means nothing. SIGHUP stays ignored under nohup.
void catch_signals(RepeatedSignal repeated = RepeatedSignal::ends);
const std::atomic<bool>& stop_requested();

/// Until catch_signals() is called, the same signals print `last_words` to stderr and end the program with
/// kExitInterrupted: there is nothing to save yet.
void end_on_signals(const char* last_words);

}  // namespace mpt
