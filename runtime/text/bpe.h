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
    uint32_t rank = ~0U;  // after all others
    int32_t id = -1;
  };
  void read_vocabulary(JsonPart& model);
  void read_merges(JsonPart& model);
  void encode_piece(std::string_view word, TokenOutput& out) const;
  void append_tokens(std::string_view word, TokenOutput& out) const;
  void merge(std::vector<Symbol>& symbols) const;

  bool byte_level_, byte_fallback_, ignore_merges_;
  TextMap<int32_t> vocabulary_;
  std::unordered_map<uint64_t, Merge> merges_;  // by the ids of both
  // By a hash of two characters, or of two ids: whether some merge joins them. The first is empty if words
  // must not be cut; the second spares most of the searches among the merges.
  std::vector<bool> joins_, pairs_;
  std::array<std::string, 256> letters_;  // of bytes: one character, or a token such as <0x0A>
  std::array<int32_t, 256> letter_ids_;   // -1: not in the vocabulary
  TextMap<char> byte_of_;                 // by letter
};

}  // namespace mpt::runtime
