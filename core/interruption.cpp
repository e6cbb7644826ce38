// SPDX-License-Identifier: Apache-2.0
#include "core/interruption.h"

#include <csignal>

namespace mpt {
namespace {

std::atomic<bool> stop{false};

void request_stop(int) { stop = true; }

}  // namespace

void catch_signals() {
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = int(SA_RESETHAND);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

const std::atomic<bool>& stop_requested() { return stop; }

}  // namespace mpt
