// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text_corpus.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/error.h"

namespace mpt::runtime {
namespace {

std::string write(const std::string& name, const std::string& text) {
  const std::string file = testing::TempDir() + "/" + name;
  std::ofstream(file, std::ios::binary) << text;
  return file;
}

TEST(TextCorpus, PermutationHitsEveryIndexOnce) {
  for (const int64_t size : {1, 2, 3, 7, 64, 65, 1000}) {
    std::set<int64_t> seen;
    for (int64_t i = 0; i < size; ++i) {
      const int64_t p = permuted(i, size, 42);
      EXPECT_GE(p, 0);
      EXPECT_LT(p, size);
      seen.insert(p);
    }
    EXPECT_EQ(int64_t(seen.size()), size);
  }
}

TEST(TextCorpus, AnEpochShowsEveryWindowOnceAndTheNextInAnotherOrder) {
  std::string text;
  for (int i = 0; i < 401; ++i) text += char('a' + i % 23);
  const TextCorpus corpus({write("corpus.txt", text)}, 4, 7);
  ASSERT_EQ(corpus.windows(), 100);
  std::vector<std::vector<int32_t>> epochs[2];
  for (int64_t n = 0; n < 200; ++n) {
    std::vector<int32_t> tokens(4), targets(4);
    corpus.sample(n, tokens.data(), targets.data());
    for (int i = 0; i < 3; ++i) EXPECT_EQ(targets[size_t(i)], tokens[size_t(i) + 1]);
    epochs[n / 100].push_back(tokens);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  std::multiset<std::vector<int32_t>> first(epochs[0].begin(), epochs[0].end()),
      second(epochs[1].begin(), epochs[1].end());
  EXPECT_EQ(first, second);
}

TEST(TextCorpus, BytesAboveAsciiAreTokensUpTo255) {
  const TextCorpus corpus({write("bytes.bin", "\xff\xfe\xfd\xfc\xfb")}, 4, 1);
  int32_t tokens[4], targets[4];
  corpus.sample(0, tokens, targets);
  EXPECT_EQ(tokens[0], 255);
  EXPECT_EQ(targets[3], 0xfb);
}

TEST(TextCorpus, BadFilesAreUserErrorsThatNameThem) {
  const auto error_of = [](const std::filesystem::path& file) -> std::string {
    try {
      TextCorpus({file}, 16, 1);
    } catch (const UserError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_NE(error_of("/no/such/text.txt").find("/no/such/text.txt"), std::string::npos);
  EXPECT_NE(error_of(testing::TempDir()).find("is a folder"), std::string::npos);
  EXPECT_NE(error_of(write("empty.txt", "")).find("0 bytes of text"), std::string::npos);
  EXPECT_NE(error_of(write("short.txt", "0123456789abcdef")).find("at least 17"), std::string::npos);
}

}  // namespace
}  // namespace mpt::runtime
