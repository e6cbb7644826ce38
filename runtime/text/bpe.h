// SPDX-License-Identifier: Apache-2.0
#pragma once

// Bpe: the model of a tokenizer.json. It begins with the characters of a word, and merges the pair of
// neighbours of the lowest rank, the leftmost first, until no pair has a rank.

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mpt::runtime {

class JsonPart;

/// Lets a map of strings be asked with a string_view.
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};
template <class T>
using TextMap = std::unordered_map<std::string, T, TextHash, std::equal_to<>>;

/// The output of one thread, and the tokens of words that it has seen.
struct TokenOutput {
  std::vector<int32_t> tokens;
  TextMap<std::vector<int32_t>> words;
};

class Bpe {
 public:
  /// The object /model of the file. `byte_level`: words are bytes, which the vocabulary writes as printable
  /// characters, as GPT-2 does. Throws UserError.
  Bpe(JsonPart& model, bool byte_level);

  /// Appends the tokens of a word, which is UTF-8 and not empty.
  void encode(std::string_view word, TokenOutput& out) const;

  const TextMap<int32_t>& vocabulary() const { return vocabulary_; }
  /// The bytes of a token of the vocabulary in text.
  std::string bytes_of(const std::string& token) const;

 private:
  struct Symbol;
  struct Merge {
    int32_t rank = 0, id = 0;
  };
  void read_vocabulary(JsonPart& model);
  void read_merges(JsonPart& model);
  std::vector<int32_t> tokens_of(std::string_view word) const;
  void merge(std::vector<Symbol>& symbols) const;

  bool byte_level_, byte_fallback_, ignore_merges_;
  TextMap<int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // by the ids of both
  std::array<std::string, 256> letters_;        // of bytes: one character, or a token such as <0x0A>
  TextMap<char> byte_of_;                       // by letter
};

}  // namespace mpt::runtime
