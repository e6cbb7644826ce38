// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace mpt {
namespace {

TEST(Error, EachKindHasItsExitCode) {
  EXPECT_EQ(run_program("t", [] { return 0; }), kExitOk);
  EXPECT_EQ(run_program("t", []() -> int { throw UserError(Problem{"f", "x", "y", "z"}); }), kExitUserError);
  EXPECT_EQ(run_program("t", []() -> int { throw RunError("rank 3 died"); }), kExitRunFailed);
  EXPECT_EQ(run_program("t",
                        []() -> int {
                          MPT_CHECK(false, "broken {}", 1);
                          return 0;
                        }),
            kExitInternalError);
  EXPECT_EQ(run_program("t", []() -> int { throw std::bad_alloc(); }), kExitRunFailed);
  EXPECT_EQ(run_program("t",
                        []() -> int {
                          throw std::system_error(std::make_error_code(std::errc::no_space_on_device),
                                                  "file");
                        }),
            kExitRunFailed);
}

// Prints `bytes` where nothing can be written, and ends as a program does.
[[noreturn]] void print_to_full_disk(size_t bytes, int code) {
  if (std::freopen("/dev/full", "w", stdout) == nullptr) std::exit(99);
  std::exit(run_program("t", [&] {
    fmt::print("{}", std::string(bytes, 'x'));
    return code;
  }));
}

TEST(ErrorDeathTest, WhatCannotBePrintedIsAFailure) {
  constexpr char kWhat[] = "t: run failed: stdout cannot be written completely \\(No space left on device\\)";
  EXPECT_EXIT(print_to_full_disk(10, kExitOk), testing::ExitedWithCode(kExitRunFailed), kWhat);
  EXPECT_EXIT(print_to_full_disk(1'000'000, kExitOk), testing::ExitedWithCode(kExitRunFailed), kWhat);
  EXPECT_EXIT(print_to_full_disk(10, kExitInterrupted), testing::ExitedWithCode(kExitInterrupted), kWhat);
  EXPECT_EXIT(print_to_full_disk(0, kExitOk), testing::ExitedWithCode(kExitOk), "");
}

// Prints `bytes` into a pipe that nobody reads, and ends as a program does.
[[noreturn]] void print_to_nobody(size_t bytes, int code) {
  int ends[2];
  if (::pipe(ends) != 0 || ::dup2(ends[1], STDOUT_FILENO) < 0) std::exit(99);
  ::close(ends[0]);
  ::close(ends[1]);
  std::exit(run_program("t", [&] {
    fmt::print("{}", std::string(bytes, 'x'));
    return code;
  }));
}

TEST(ErrorDeathTest, AReaderThatIsGoneIsNoFailure) {
  EXPECT_EXIT(print_to_nobody(100'000, kExitOk), testing::ExitedWithCode(kExitOk), "^$");
  EXPECT_EXIT(print_to_nobody(10, kExitRunFailed), testing::ExitedWithCode(kExitRunFailed), "^$");
  EXPECT_EXIT(print_to_nobody(10'000'000, kExitOk), testing::ExitedWithCode(141), "^$");
}

TEST(ErrorDeathTest, ALimitOnFileSizesIsAFullDisk) {
  const auto print_beyond = [] {
    const rlimit limit{100'000, RLIM_INFINITY};
    const std::string file = testing::TempDir() + "/limited_output";
    if (std::freopen(file.c_str(), "w", stdout) == nullptr || setrlimit(RLIMIT_FSIZE, &limit) != 0)
      std::exit(99);
    std::exit(run_program("t", [] {
      fmt::print("{}", std::string(200'000, 'x'));
      return kExitOk;
    }));
  };
  EXPECT_EXIT(print_beyond(), testing::ExitedWithCode(kExitRunFailed), "stdout cannot be written");
}

TEST(ErrorDeathTest, AnErrorKeepsItsExitCodeWhereItCannotBePrinted) {
  const auto fail = [] {
    if (std::freopen("/dev/full", "w", stderr) == nullptr) std::exit(99);
    std::setvbuf(stderr, nullptr, _IONBF, 0);
    std::exit(run_program("t", []() -> int { throw UserError(Problem{"f", "x", "y", "z"}); }));
  };
  EXPECT_EXIT(fail(), testing::ExitedWithCode(kExitUserError), "");
}

TEST(ErrorDeathTest, NoFileTakesThePlaceOfAClosedStream) {
  const auto open_one = [] {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::close(stream);
    std::exit(run_program("t", [] { return ::open("/dev/null", O_RDONLY) > STDERR_FILENO ? kExitOk : 99; }));
  };
  EXPECT_EXIT(open_one(), testing::ExitedWithCode(kExitOk), "");
}

TEST(Error, UserErrorNamesPlaceFoundExpectedAndRemedyOfEveryProblem) {
  const UserError error({{"a.json at /x", "3", "a text", "quote it"}, {"b", "nothing", "", ""}});
  const std::string text = error.what();
  for (const char* part : {"a.json at /x", "3", "a text", "quote it", "b: nothing"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
}

TEST(Error, CheckNamesPlaceAndValues) {
  try {
    MPT_CHECK(1 > 2, "wait {} on {}", 7, 9);
    FAIL();
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what()).find("wait 7 on 9"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("error_test.cpp"), std::string::npos);
  }
}

TEST(Error, NearestNameForgivesCaseAndTyposButNotStrangers) {
  const std::vector<std::string> known{"gpipe", "1f1b", "interleaved"};
  EXPECT_EQ(nearest_name("1f1B", known), "1f1b");
  EXPECT_EQ(nearest_name("interleave", known), "interleaved");
  EXPECT_EQ(nearest_name("completely-else", known), "");
  EXPECT_EQ(did_you_mean("GPipe", known), "; did you mean \"gpipe\"?");
}

}  // namespace
}  // namespace mpt
