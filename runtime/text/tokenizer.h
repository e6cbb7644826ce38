// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tokenizer: a tokenizer.json of the package `tokenizers` for byte-pair encoding. It gives the
// tokens of the package's Tokenizer.encode(), those of the post-processor's template included.

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/bpe.h"
#include "runtime/text/text_steps.h"

namespace mpt::runtime {

class Tokenizer {
 public:
  /// Throws UserError with the name of whatever MPT does not read.
  explicit Tokenizer(const std::filesystem::path& file);

  /// Appends the tokens of a document. Throws UserError if it is not UTF-8; `where` names it. Several threads
  /// may call it, each with another output.
  void encode(std::string_view document, const std::string& where, TokenOutput& out) const;
  /// The bytes of a token in text; empty if there is none of this id.
  std::string bytes_of(int32_t id) const;
  std::optional<int32_t> id_of(const std::string& token) const;
  /// The highest id and one more: the least size of a model's vocabulary.
  int64_t ids() const { return bytes_.empty() ? 0 : int64_t(bytes_.rbegin()->first) + 1; }

 private:
  // Tokens that are searched for in text: at each place the longest.
  struct AddedTokens {
    TextMap<int32_t> tokens;
    std::array<std::set<size_t, std::greater<>>, 256> lengths;  // of those that begin with this byte

    // Appends the ids of these tokens, and calls on_text(part) for the text between them.
    template <class Text>
    void cut(std::string_view text, TokenOutput& out, Text&& on_text) const {
      size_t begin = 0;
      for (size_t at = 0; at < text.size(); ++at)
        for (const size_t length : lengths[uint8_t(text[at])]) {
          const auto found = tokens.find(text.substr(at, length));
          if (found == tokens.end()) continue;
          if (begin < at) on_text(text.substr(begin, at - begin));
          out.tokens.push_back(found->second);
          begin = at + found->first.size();
          at = begin - 1;
          break;
        }
      if (begin < text.size()) on_text(text.substr(begin));
    }
  };
  bool is_byte_level() const { return !pre_tokenizers_.empty() && pre_tokenizers_.back().byte_level; }
  void add_tokens(JsonPart& root);
  void read_template(JsonPart& part);
  std::string normalised(std::string text) const;
  void encode_part(std::string_view text, size_t step, bool first, TokenOutput& out) const;

  std::vector<Normalizer> normalizers_;
  std::vector<PreTokenizer> pre_tokenizers_;
  std::optional<Bpe> model_;
  TextMap<int32_t> ids_;
  std::map<int32_t, std::string> bytes_;  // by id
  AddedTokens before_, after_;            // those searched for before normalising, and after it
  std::vector<int32_t> first_;            // of each document
};

}  // namespace mpt::runtime
