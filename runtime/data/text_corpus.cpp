// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/text_corpus.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/error.h"

namespace mpt::runtime {
namespace {

uint64_t scramble(uint64_t x) {
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdULL;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return x ^ (x >> 33);
}

void append_file(const std::filesystem::path& file, std::string& bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw UserError(Problem{"--data " + file.string(), "is a folder", "text files", "name the files in it"});
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw UserError(Problem{"--data " + file.string(),
                            fmt::format("cannot be read ({})", std::strerror(errno)), "a readable text file",
                            "check the path"});
  }
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0) bytes.append(chunk, size_t(in.gcount()));
}

}  // namespace

int64_t permuted(int64_t index, int64_t size, uint64_t key) {
  const int half_bits = std::max(1, (int(std::bit_width(uint64_t(size - 1))) + 1) / 2);
  const uint64_t mask = (uint64_t{1} << half_bits) - 1;
  uint64_t value = uint64_t(index);
  do {
    uint64_t left = value >> half_bits, right = value & mask;
    for (uint64_t round = 0; round < 4; ++round) {
      const uint64_t next = left ^ (scramble(right + scramble(key + round)) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= uint64_t(size));
  return int64_t(value);
}

TextCorpus::TextCorpus(const std::vector<std::filesystem::path>& files, int64_t sequence, uint64_t seed)
    : sequence_(sequence), seed_(seed) {
  for (const auto& file : files) append_file(file, bytes_);
  windows_ = (int64_t(bytes_.size()) - 1) / sequence_;
  if (windows_ >= 1) return;
  throw UserError(Problem{
      "--data", fmt::format("{} bytes of text in {} files", bytes_.size(), files.size()),
      fmt::format("at least {}: one sequence of {} tokens and the token after it", sequence + 1, sequence),
      "add files, or plan with a shorter --seq"});
}

void TextCorpus::sample(int64_t number, int32_t* tokens, int32_t* targets) const {
  const uint64_t epoch = uint64_t(number / windows_);
  const int64_t window = permuted(number % windows_, windows_, seed_ ^ scramble(epoch + 1));
  const char* at = bytes_.data() + window * sequence_;
  for (int64_t i = 0; i < sequence_; ++i) {
    tokens[i] = uint8_t(at[i]);
    targets[i] = uint8_t(at[i + 1]);
  }
}

}  // namespace mpt::runtime
