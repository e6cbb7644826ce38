// SPDX-License-Identifier: Apache-2.0
#pragma once

// TextCorpus: text files as one run of byte tokens (vocabulary 256), cut into windows. Which window a sample
// shows depends on seed, epoch and its number alone, so every layout trains on the same data.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace mpt::runtime {

class TextCorpus {
 public:
  /// Throws UserError: a file that is missing, a folder, or too little text for one window of `sequence` + 1.
  TextCorpus(const std::vector<std::filesystem::path>& files, int64_t sequence, uint64_t seed);

  int64_t tokens() const { return int64_t(bytes_.size()); }
  int64_t windows() const { return windows_; }

  /// Sample `number` of the run: `tokens` and `targets` get `sequence` ids each, targets one byte later.
  void sample(int64_t number, int32_t* tokens, int32_t* targets) const;

 private:
  std::string bytes_;
  int64_t sequence_;
  uint64_t seed_;
  int64_t windows_ = 0;
};

/// A permutation of 0 .. size - 1 that is computed, not stored: a four-round Feistel network with cycle
/// walking (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
int64_t permuted(int64_t index, int64_t size, uint64_t key);

}  // namespace mpt::runtime
