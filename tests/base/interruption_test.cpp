// SPDX-License-Identifier: Apache-2.0
#include "base/interruption.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

namespace mpt {
namespace {

// Ends a test's child process: with 0 if it lived on and was asked to stop.
[[noreturn]] void end() { std::exit(stop_requested() ? 0 : 1); }

TEST(InterruptionDeathTest, EachSignalIsAWishToStop) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(
        {
          std::signal(SIGHUP, SIG_DFL);  // tests may run under nohup
          catch_signals();
          std::raise(signal);
          end();
        },
        testing::ExitedWithCode(0), "");
  }
}

TEST(InterruptionDeathTest, TheSameWishToldTwiceIsOne) {
  EXPECT_EXIT(
      {
        catch_signals();
        for (int i = 0; i < 3; ++i) std::raise(SIGTERM);
        std::raise(SIGINT);
        end();
      },
      testing::ExitedWithCode(0), "");
}

TEST(InterruptionDeathTest, ALaterSignalEndsAtOnceUnlessAParentDecides) {
  const auto twice = [](RepeatedSignal repeated) {
    catch_signals(repeated);
    std::raise(SIGTERM);
    ::usleep(1'100'000);
    std::raise(SIGTERM);
    end();
  };
  EXPECT_EXIT(twice(RepeatedSignal::ends), testing::KilledBySignal(SIGTERM), "");
  EXPECT_EXIT(twice(RepeatedSignal::ignored), testing::ExitedWithCode(0), "");
}

TEST(InterruptionDeathTest, BeforeThereIsAnythingToSaveASignalEndsAtOnce) {
  const auto stopped_early = [] {
    end_on_signals("nothing to save\n");
    std::raise(SIGTERM);
    std::exit(1);
  };
  EXPECT_EXIT(stopped_early(), testing::ExitedWithCode(130), "nothing to save");
}

TEST(InterruptionDeathTest, UnderNohupAHangUpMeansNothing) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        catch_signals();
        std::raise(SIGHUP);
        std::exit(stop_requested() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace mpt
