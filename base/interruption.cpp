// SPDX-License-Identifier: Apache-2.0
#include "base/interruption.h"

#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <ctime>

#include "base/error.h"

namespace mpt {
namespace {

std::atomic<bool> stop{false};
std::atomic<bool> repeats_end{true};
std::atomic<const char*> early_end{""};
std::atomic<int64_t> first_ns{0};  // when the first signal came; 0: none did

constexpr int64_t kSameWishNs = 1'000'000'000;

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

void request_stop(int signal) {
  const int64_t now = now_ns();
  int64_t first = 0;
  stop = true;
  if (first_ns.compare_exchange_strong(first, now) || !repeats_end || now - first < kSameWishNs) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void end_now(int /*signal*/) {
  const char* const text = early_end;
  (void)!::write(STDERR_FILENO, text, std::strlen(text));
  ::_exit(kExitInterrupted);
}

void handle_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  struct sigaction before {};
  sigaction(SIGHUP, nullptr, &before);
  // nohup ignores SIGHUP, so that a program outlives its terminal.
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

void catch_signals(RepeatedSignal repeated) {
  repeats_end = repeated == RepeatedSignal::ends;
  handle_signals(request_stop);
}

void end_on_signals(const char* last_words) {
  early_end = last_words;
  handle_signals(end_now);
}

const std::atomic<bool>& stop_requested() { return stop; }

}  // namespace mpt
