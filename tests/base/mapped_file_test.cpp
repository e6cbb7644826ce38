// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"

namespace mpt {
namespace {

std::filesystem::path file_of(const std::string& name, size_t bytes) {
  auto file = std::filesystem::path(testing::TempDir()) / ("mapped_file_" + name);
  std::filesystem::remove(file);
  std::ofstream(file) << std::string(bytes, 'x');
  return file;
}

TEST(MappedFile, HoldsTheBytesOfTheFile) {
  const MappedFile file(file_of("whole", 10), "f");
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.bytes()[9], 'x');
  EXPECT_EQ(MappedFile(file_of("empty", 0), "f").size(), 0);
}

TEST(MappedFile, APipeIsRefusedAndNotWaitedFor) {
  const auto pipe = file_of("pipe", 0);
  std::filesystem::remove(pipe);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(MappedFile(pipe, "f"), UserError);
}

using MappedFileDeathTest = testing::Test;

TEST(MappedFileDeathTest, AFileThatBecomesShorterEndsTheRunByItsName) {
  const auto path = file_of("shrinks", 3 * 4096);
  const auto read_after_cut = [&] {
    const MappedFile gone(file_of("closed", 4096), "--data closed.txt");
    MappedFile file(path, "--data shrinks.txt");
    const MappedFile moved = std::move(file);
    std::filesystem::resize_file(path, 100);
    volatile uint8_t last = moved.bytes()[2 * 4096];
    std::exit(last == 0 ? 77 : 78);
  };
  EXPECT_EXIT(read_after_cut(), testing::ExitedWithCode(kExitRunFailed),
              "run failed: --data shrinks.txt: cannot be read any more");
}

}  // namespace
}  // namespace mpt
