// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/ranges.h>

#include <cctype>
#include <clocale>
#include <cmath>
#include <cstdlib>

namespace mpt {

Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return uint8_t(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < length) return {};
  int32_t code = lead & (0x7f >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr int32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // shorter forms of a code are not allowed
  if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {};
  return {code, length};
}

namespace {

bool is_hidden(int32_t code) {
  // Control characters of ASCII and Latin-1; marks of direction; line and paragraph separators, embeddings
  // and overrides; isolates; the byte order mark; code points that XML forbids.
  constexpr std::pair<int32_t, int32_t> kRanges[] = {{-1, 0x1f},       {0x7f, 0x9f},     {0x200e, 0x200f},
                                                     {0x2028, 0x202e}, {0x2066, 0x2069}, {0xfeff, 0xfeff},
                                                     {0xfffe, 0xffff}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [&](const auto& range) { return code >= range.first && code <= range.second; });
}

std::string escaped(std::string_view text, bool keeps_lines) {
  std::string out;
  while (!text.empty()) {
    if (keeps_lines && text.starts_with("\r\n")) text.remove_prefix(1);
    const auto [code, bytes] = first_character(text);
    if (!is_hidden(code) || (keeps_lines && (code == '\n' || code == '\t')))
      out += text.substr(0, bytes);
    else if (code > 0xff)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\x{:02x}", code >= 0 ? code : int32_t(uint8_t(text.front())));
    text.remove_prefix(bytes);
  }
  return out;
}

// Length of [-] digits [. digits] [e [sign] digits], with at least one digit; 0 if there is none.
size_t length_of_number(std::string_view text) {
  const auto skip_digits = [&](size_t at) {
    return std::min(text.find_first_not_of("0123456789", at), text.size());
  };
  const size_t begin = text.starts_with('-') ? 1 : 0;
  size_t end = skip_digits(begin), digits = end - begin;
  if (end < text.size() && text[end] == '.') {
    const size_t fraction = end + 1;
    end = skip_digits(fraction);
    digits += end - fraction;
  }
  if (digits == 0) return 0;
  if (end == text.size() || (text[end] != 'e' && text[end] != 'E')) return end;
  const bool has_sign = end + 1 < text.size() && (text[end + 1] == '+' || text[end + 1] == '-');
  const size_t exponent = end + (has_sign ? 2 : 1);
  return skip_digits(std::min(exponent, text.size())) > exponent ? skip_digits(exponent) : end;
}

}  // namespace

LeadingNumber leading_number(std::string_view text) {
  const size_t length = length_of_number(text);
  if (length == 0) return {};
  std::string number(text.substr(0, length));
  const size_t digits = number.find_first_of("123456789"), exponent = number.find_first_of("eE");
  if (const size_t point = number.find('.'); point != std::string::npos)
    number.replace(point, 1, std::localeconv()->decimal_point);  // strtod takes no other mark
  const double value = std::strtod(number.c_str(), nullptr);
  const bool vanished = value == 0.0 && digits < exponent;
  return std::isfinite(value) && !vanished ? LeadingNumber{value, length} : LeadingNumber{};
}

std::string printable(std::string_view text) { return escaped(text, false); }

std::string printable_lines(std::string_view text) { return escaped(text, true); }

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const auto [code, bytes] = first_character(text);
    if (is_hidden(code)) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string_view cut_text(std::string_view text, size_t bytes) {
  if (text.size() <= bytes) return text;
  while (bytes > 0 && (uint8_t(text[bytes]) & 0xc0) == 0x80) --bytes;
  return text.substr(0, bytes);
}

std::vector<std::string> split_at(std::string_view text, char letter) {
  std::vector<std::string> parts;
  for (size_t end = text.find(letter); end != std::string_view::npos; end = text.find(letter)) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.emplace_back(text);
  return parts;
}

std::string_view without_blanks(std::string_view text) {
  constexpr const char* kBlanks = " \t\r";
  const size_t first = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(first, text.find_last_not_of(kBlanks) + 1 - first);
}

std::string lower_case(std::string text) {
  for (char& letter : text) letter = char(std::tolower(static_cast<unsigned char>(letter)));
  return text;
}

std::string replaced(std::string text, char letter, char other) {
  std::replace(text.begin(), text.end(), letter, other);
  return text;
}

std::string joined(const std::vector<std::string>& texts, std::string_view between) {
  return fmt::format("{}", fmt::join(texts, between));
}

}  // namespace mpt
