// SPDX-License-Identifier: Apache-2.0
#pragma once

// Normalizers and pre-tokenizers: the steps of a tokenizer before its model sees words.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace mpt::runtime {

class JsonPart;

using Normalizer = std::function<std::string(const std::string& text)>;

/// A part of "normalizer" in a tokenizer.json. Throws UserError.
Normalizer read_normalizer(JsonPart& part);

/// A regular expression, compiled by PCRE2. The package `tokenizers` compiles it by Oniguruma. Parts that
/// mean something else there, or nothing here, are refused.
class Regex {
 public:
  struct Match {
    size_t begin, end;  // bytes
  };
  /// `where` is the pattern's place, for errors; a pattern without one is not checked. Throws UserError.
  explicit Regex(const std::string& pattern, const std::string& where = "");

  /// The first match that begins at byte `from` or later. `text` is UTF-8. Several threads may call it.
  /// Throws RunError if a match needs too much memory.
  std::optional<Match> find(std::string_view text, size_t from) const;

 private:
  std::shared_ptr<pcre2_real_code_8> code_;
};

/// The text with a character of the same kind in place of each that PCRE2 10.42 knows otherwise than the
/// package. No byte moves.
std::string as_expressions_see(std::string_view text);

/// The text with `mark` in place of each blank.
std::string with_marks(std::string_view text, const std::string& mark);

/// One pre-tokenizer: blanks are replaced, a prefix is set before text that does not begin with it, and the
/// text is split.
struct PreTokenizer {
  enum class Prefix { never, first, always };  // first: of the document

  std::string blank = " ", prefix = " ";
  Prefix prepends = Prefix::never;
  std::optional<Regex> split;
  bool joins = false;  // each match of `split` ends the part before it; else it is a part
  bool byte_level = false;

  /// Calls emit(part, first) for the parts of `text`, in order. None is empty. `first`: the document begins
  /// with it.
  template <class F>
  void for_each_part(std::string_view text, bool first, F&& emit) const {
    std::string changed;
    if (blank != " ") text = changed = with_marks(text, blank);
    const bool prepends_here = prepends == Prefix::always || (prepends == Prefix::first && first);
    if (prepends_here && !text.starts_with(prefix)) text = changed = prefix + std::string(text);
    const std::string seen = split ? as_expressions_see(text) : "";
    size_t at = 0;
    const auto emit_until = [&](size_t end) {
      if (at < end) emit(text.substr(at, end - at), first && at == 0);
      at = end;
    };
    for (auto match = split ? split->find(seen, 0) : std::nullopt; match; match = split->find(seen, at)) {
      if (!joins) emit_until(match->begin);
      emit_until(match->end);
    }
    emit_until(text.size());
  }
};

/// A part of "pre_tokenizer". Throws UserError.
PreTokenizer read_pre_tokenizer(JsonPart& part);

}  // namespace mpt::runtime
