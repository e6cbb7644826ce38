// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/error.h"
#include "base/interruption.h"

namespace mpt::runtime {
namespace {

// What attempts, which are processes, leave for the test to see.
struct Trace {
  std::atomic<int> attempts, restarted, ready, child;
};

class Supervised : public testing::Test {
 protected:
  Supervised()
      : trace_(*new (::mmap(nullptr, sizeof(Trace), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                            0)) Trace{}) {}
  ~Supervised() override { ::munmap(&trace_, sizeof(Trace)); }

  // The exit code when `attempt` runs in each child; nothing is waited for in between.
  int run(int64_t restarts, const std::function<int(const Attempt&)>& attempt, double pause_s = 0.0) {
    return run_supervised(
        restarts,
        [&](const Attempt& a) {
          ++trace_.attempts;
          if (a.restarted) ++trace_.restarted;
          return attempt(a);
        },
        pause_s);
  }

  // Runs `act` in another process when a child is ready: signals to this one must find it where it waits.
  void when_ready(const std::function<void()>& act) {
    helper_ = ::fork();
    if (helper_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (trace_.ready == 0) ::usleep(1000);
    act();
    ::_exit(0);
  }

  // A run that goes on until it is asked to stop, as training does.
  int until_stopped() {
    catch_signals(RepeatedSignal::ignored);
    ++trace_.ready;
    while (!stop_requested()) ::usleep(1000);
    return kExitInterrupted;
  }

  // All that it does has arrived.
  void wait_for_helper() const { ::waitpid(helper_, nullptr, 0); }

  Trace& trace_;
  pid_t helper_ = -1;
};

TEST_F(Supervised, WhatAlwaysFailsIsStartedOnceAndAsOftenAgainAsAskedFor) {
  for (const int64_t restarts : {1, 3}) {
    trace_.attempts = trace_.restarted = 0;
    EXPECT_EQ(run(restarts, [](const Attempt&) { return kExitRunFailed; }), kExitRunFailed);
    EXPECT_EQ(trace_.attempts, restarts + 1);
    EXPECT_EQ(trace_.restarted, restarts);
  }
}

TEST_F(Supervised, WhatIsKilledIsStartedAgain) {
  const int code = run(3, [](const Attempt& attempt) {
    if (!attempt.restarted) ::raise(SIGKILL);
    return kExitOk;
  });
  EXPECT_EQ(code, kExitOk);
  EXPECT_EQ(trace_.attempts, 2);
}

TEST_F(Supervised, WrongInputInterruptionAndWhatFailsAfterTrainingAreFinal) {
  for (const int code : {kExitUserError, kExitNoDevice, kExitInterrupted}) {
    trace_.attempts = 0;
    EXPECT_EQ(run(3, [code](const Attempt&) { return code; }), code);
    EXPECT_EQ(trace_.attempts, 1);
  }
  trace_.attempts = 0;
  const int code = run(3, [](const Attempt& attempt) {
    attempt.has_trained = true;
    return kExitRunFailed;
  });
  EXPECT_EQ(code, kExitRunFailed);
  EXPECT_EQ(trace_.attempts, 1);
}

// Ctrl-C goes to parent and child, and the parent passes it on, too.
TEST_F(Supervised, AStopOfParentAndChildSavesOnceAndStartsNothing) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    std::signal(SIGHUP, SIG_DFL);
    trace_.attempts = trace_.ready = 0;
    const pid_t parent = ::getpid();
    when_ready([&] {
      for (int i = 0; i < 3; ++i) {
        ::kill(trace_.child, signal);
        ::kill(parent, signal);
      }
    });
    const int code = run(3, [&](const Attempt&) {
      trace_.child = ::getpid();
      return until_stopped();
    });
    wait_for_helper();
    EXPECT_EQ(code, kExitInterrupted);
    EXPECT_EQ(trace_.attempts, 1);
  }
}

// Before the run listens to signals it has nothing to save.
TEST_F(Supervised, AStopWhileTheRunStartsIsAStop) {
  const pid_t parent = ::getpid();
  when_ready([&] { ::kill(parent, SIGTERM); });
  const int code = run(3, [&](const Attempt&) {
    ++trace_.ready;
    while (true) ::usleep(1000);
    return kExitOk;
  });
  wait_for_helper();
  EXPECT_EQ(code, kExitInterrupted);
  EXPECT_EQ(trace_.attempts, 1);
}

TEST_F(Supervised, AStopBetweenTwoAttemptsIsNotLost) {
  const pid_t parent = ::getpid();
  const int code = run(
      3,
      [&](const Attempt&) {
        ::kill(parent, SIGTERM);
        return kExitRunFailed;
      },
      300.0);
  EXPECT_NE(code, kExitOk);
  EXPECT_EQ(trace_.attempts, 1);
}

TEST_F(Supervised, ASecondStopEndsARunThatDoesNotListen) {
  const pid_t parent = ::getpid();
  when_ready([&] {
    ::kill(parent, SIGTERM);
    ::usleep(1'200'000);
    ::kill(parent, SIGTERM);
  });
  const int code = run(3, [&](const Attempt&) {
    catch_signals(RepeatedSignal::ignored);
    ++trace_.ready;
    while (true) ::usleep(1000);
    return kExitOk;
  });
  wait_for_helper();
  EXPECT_EQ(code, kExitInterrupted);
  EXPECT_EQ(trace_.attempts, 1);
}

}  // namespace
}  // namespace mpt::runtime
