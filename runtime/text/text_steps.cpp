// SPDX-License-Identifier: Apache-2.0
#include "runtime/text/text_steps.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <utf8proc.h>

#include <cstdlib>
#include <unordered_map>

#include "base/text.h"
#include "runtime/text/tokenizer_json.h"

namespace mpt::runtime {
namespace {

// GPT-2's expression, which the package has built in.
constexpr char kGpt2[] = R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// The start of a pattern with one meaning in both libraries: \w, \b and \h, nested classes, intersections and
// (?m) differ between them.
constexpr char kAlike[] = R"(\A(?:(?!\(\?[a-z]*[mx])[^\\\[]|\\[pPsSdDrntxfvAzZ[:^alnum:]]|)"
                          R"(\[(?:(?!&&)[^\\\[\]]|\\[pPsSdDrntxfvAzZ[:^alnum:]])*\])++)";

std::string pcre_message(int code) {
  char text[200] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

[[noreturn]] void refuse_pattern(const std::string& where, size_t at, const std::string& found) {
  refuse_part(where, fmt::format("a regular expression with, from byte {}: {}", at, found));
}

// Of characters that the package and the libraries here read differently, since each knows another version of
// Unicode: one of as many bytes that expressions see in its place, or nothing if only NFC differs.
std::unordered_map<int32_t, std::string_view> characters_that_differ() {
  constexpr std::pair<const char*, const char*> kRows[] = {
#include "generated/CharactersThatDiffer.inc"
  };
  std::unordered_map<int32_t, std::string_view> likes;
  for (const auto& [like, codes] : kRows)
    for (const std::string& range : split_at(codes, ' ')) {
      size_t end = 0;
      const int32_t first = std::stoi(range, &end, 16);
      const int32_t last = end < range.size() ? std::stoi(range.substr(end + 1), nullptr, 16) : first;
      for (int32_t code = first; code <= last; ++code) likes[code] = like;
    }
  return likes;
}

// Calls f(place, bytes, like) for each of them in the text.
template <class F>
void for_each_that_differs(std::string_view text, F&& f) {
  static const auto likes = characters_that_differ();
  for (size_t at = 0, length = 1; at < text.size(); at += length, length = 1) {
    if (uint8_t(text[at]) < 0x80) continue;
    const auto [code, bytes] = first_character(text.substr(at));
    length = bytes;
    if (const auto found = likes.find(code); found != likes.end()) f(at, bytes, found->second);
  }
}

std::string composed(std::string_view text) {
  utf8proc_uint8_t* made = nullptr;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  const auto length = utf8proc_map(bytes, utf8proc_ssize_t(text.size()), &made,
                                   utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(made, std::free);
  if (length < 0) fail_run("normalising text: {}", utf8proc_errmsg(length));
  return {reinterpret_cast<const char*>(made), size_t(length)};
}

// The canonical composition. Text of ASCII alone is one. For the package a character that its tables lack
// joins with no other, so text is cut there; also at U+11A7, which utf8proc 2.8 drops after a syllable of
// Hangul.
std::string nfc(const std::string& text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return uint8_t(c) < 0x80; })) return text;
  std::string out;
  size_t begin = 0;
  for_each_that_differs(text, [&](size_t at, size_t bytes, std::string_view) {
    out.append(composed(std::string_view(text).substr(begin, at - begin))).append(text, at, bytes);
    begin = at + bytes;
  });
  return out.append(composed(std::string_view(text).substr(begin)));
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where) {
  int error = 0;
  PCRE2_SIZE at = 0;
  // In Oniguruma, ^ and $ always match at lines.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), kOptions, &error,
                            &at, nullptr),
              pcre2_code_free);
  if (!code_) refuse_pattern(where, at, pcre_message(error));
  uint32_t empty = 0;
  pcre2_pattern_info(code_.get(), PCRE2_INFO_MATCHEMPTY, &empty);
  if (empty != 0) refuse_pattern(where, 0, "matches of empty text");
  pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE);  // where the processor has none, matching is slower
  if (where.empty()) return;
  static const Regex alike(kAlike);
  const auto good = alike.find(pattern, 0);
  at = good ? good->end : 0;
  if (at < pattern.size())
    refuse_pattern(where, at, pattern.substr(at) + ", which PCRE2 and Oniguruma may read differently");
}

std::optional<Regex::Match> Regex::find(std::string_view text, size_t from) const {
  // The whole match alone.
  thread_local const std::shared_ptr<pcre2_match_data> data(pcre2_match_data_create(1, nullptr),
                                                            pcre2_match_data_free);
  int found = PCRE2_ERROR_JIT_STACKLIMIT;
  for (const uint32_t option : {0u, PCRE2_NO_JIT}) {  // long runs of blanks need more than the stack of JIT
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                          PCRE2_NO_UTF_CHECK | option, data.get(), nullptr);
  }
  if (found == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (found < 0) fail_run("the tokenizer's expression, from byte {}: {}", from, pcre_message(found));
  const PCRE2_SIZE* at = pcre2_get_ovector_pointer(data.get());
  return Match{at[0], at[1]};
}

std::string as_expressions_see(std::string_view text) {
  std::string seen(text);
  for_each_that_differs(text, [&](size_t at, size_t, std::string_view like) {
    std::copy(like.begin(), like.end(), seen.begin() + ptrdiff_t(at));
  });
  return seen;
}

std::string with_marks(std::string_view text, const std::string& mark) {
  std::string out;
  for (const char c : text) c == ' ' ? out += mark : out += c;
  return out;
}

Normalizer read_normalizer(JsonPart& part) {
  const auto type = part.get<std::string>("type");
  if (type == "NFC") return nfc;
  if (type == "Prepend")
    return [prefix = part.get<std::string>("prepend")](const std::string& t) { return prefix + t; };
  if (type != "Replace") part.refuse("type");
  part.expect("pattern", Json::object({{"String", " "}}));
  return [mark = part.get<std::string>("content")](const std::string& t) { return with_marks(t, mark); };
}

PreTokenizer read_pre_tokenizer(JsonPart& part) {
  using Prefix = PreTokenizer::Prefix;
  const auto type = part.get<std::string>("type");
  PreTokenizer made;
  if (type == "Metaspace") {
    made.blank = made.prefix = part.get<std::string>("replacement");
    const auto scheme = enum_value<Prefix>(part.get<std::string>("prepend_scheme", "always"));
    if (!scheme) part.refuse("prepend_scheme");
    made.prepends = *scheme;
    if (part.get<bool>("split", true)) refuse_part(part.where("split"), "true, as it is without this key");
  } else if (type == "Split") {
    const auto behavior = part.get<std::string>("behavior");
    made.joins = behavior == "MergedWithPrevious";
    if (!made.joins && behavior != "Isolated") part.refuse("behavior");
    part.expect("invert", false);
    JsonPart pattern(part.value("pattern"), part.where("pattern"));
    pattern.expect("String", " ");
    made.split = Regex(pattern.get<std::string>("Regex", " "), pattern.where("Regex"));
    pattern.finish();
  } else if (type == "Digits") {
    // Digits of Unicode 17, too: they are none in expressions.
    const std::string digit = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";
    made.split = Regex(part.get<bool>("individual_digits", false) ? digit : digit + "+");
  } else if (type == "ByteLevel") {
    made.byte_level = true;
    part.value("trim_offsets");  // concerns places in the text, which a corpus has not
    if (part.get<bool>("add_prefix_space", true)) made.prepends = Prefix::always;
    if (part.get<bool>("use_regex", true)) made.split = Regex(kGpt2);
  } else {
    part.refuse("type");
  }
  return made;
}

}  // namespace mpt::runtime
