// SPDX-License-Identifier: Apache-2.0
#include "tests/support/golden.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace mpt::test {
namespace {

std::string read(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

bool updating(const std::filesystem::path& file, const std::string& text) {
  if (std::getenv("MPT_UPDATE_GOLDEN") == nullptr) return false;
  std::filesystem::create_directories(file.parent_path());
  std::ofstream(file, std::ios::binary) << text;
  ADD_FAILURE() << "wrote " << file << "; look at the difference and run again";
  return true;
}

bool line_matches(const std::string& golden, const std::string& line) {
  const size_t mark = golden.find("%any");
  return mark == std::string::npos ? golden == line : line.compare(0, mark, golden, 0, mark) == 0;
}

}  // namespace

void expect_golden(const std::string& name, const std::string& text) {
  const auto file = std::filesystem::path(MPT_SOURCE_DIR) / "tests" / "golden" / name;
  if (updating(file, text)) return;
  ASSERT_TRUE(std::filesystem::exists(file)) << file << " is missing: run scripts/update_golden";
  std::istringstream golden(read(file)), actual(text);
  std::string want, have;
  for (int number = 1;; ++number) {
    const bool more_want = bool(std::getline(golden, want));
    const bool more_have = bool(std::getline(actual, have));
    if (!more_want && !more_have) return;
    ASSERT_TRUE(more_want && more_have && line_matches(want, have))
        << name << ", line " << number << "\n  golden: " << (more_want ? want : "(end)")
        << "\n  actual: " << (more_have ? have : "(end)") << "\nWhole output:\n"
        << text;
  }
}

void expect_source_file(const std::string& path, const std::string& text) {
  const auto file = std::filesystem::path(MPT_SOURCE_DIR) / path;
  if (updating(file, text)) return;
  EXPECT_EQ(read(file), text) << path << " is not what the program writes: run scripts/update_golden";
}

void expect_part_of_file(const std::string& path, const std::string& head, const std::string& text) {
  const std::string whole = read(std::filesystem::path(MPT_SOURCE_DIR) / path);
  const size_t at = whole.find(head);
  ASSERT_NE(at, std::string::npos) << path << " has no part that begins with\n" << head;
  const size_t begin = at + head.size();
  const size_t blank = whole.find("\n\n", begin - 1);
  const size_t end = blank == std::string::npos ? whole.size() : blank + 1;
  expect_source_file(path, whole.substr(0, begin) + text + whole.substr(end));
}

}  // namespace mpt::test
