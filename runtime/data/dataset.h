// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dataset: token files cut into windows, shuffled and blended. Only seed, epoch and number of a sample decide
// its window. So every layout trains on the same data, and a run resumes at the next sample from its number.
// Nothing is held in memory.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/data/token_source.h"

namespace mpt::runtime {

/// Files that are read as one run of tokens, and the weight of their samples.
struct DataPart {
  double weight = 1.0;
  std::vector<std::string> paths;
};

/// "a b c": one part. "0.7 a 0.3 b": one part per pair, as in Megatron-LM. Throws UserError.
std::vector<DataPart> parse_data_argument(const std::vector<std::string>& words);

struct DatasetOptions {
  std::vector<DataPart> parts;
  DataFormat format = DataFormat::auto_;
  int64_t sequence = 1;
  int64_t further = 0;  // targets after the last token of a sequence, for next-token modules
  int64_t vocab = 256;  // tokens beyond it are refused
  uint64_t seed = 1;
  double validation_share = 0.0;                    // of each part's windows, at its end, kept from training
  int64_t tokens_checked_first = int64_t{1} << 24;  // of each file, before training; others when read
};

enum class DataSplit { training, validation };

class Dataset {
 public:
  /// Throws UserError for a file that cannot be read, or too few tokens for one window of `sequence` + 1
  /// tokens and the further ones.
  Dataset(const DatasetOptions& options, DataSplit split);
  ~Dataset();

  int64_t tokens() const;   // in all files
  int64_t windows() const;  // of this split
  /// A digest of names and sizes: shows whether a resumed run reads the data of the first one.
  std::string digest() const;

  /// Sample `number` of the run: `tokens` gets `sequence` ids, and `targets` `sequence` + `further` ids,
  /// shifted by one. Throws UserError at a token beyond the vocabulary.
  void sample(int64_t number, int32_t* tokens, int32_t* targets) const;

 private:
  struct Part;
  std::pair<size_t, int64_t> draw(int64_t number) const;

  DatasetOptions options_;
  std::vector<Part> parts_;
};

/// A permutation of 0 .. size - 1 that is computed, not stored: a four-round Feistel network with cycle
/// walking (Black and Rogaway 2002, "Ciphers with arbitrary finite domains").
int64_t permuted(int64_t index, int64_t size, uint64_t key);

}  // namespace mpt::runtime
