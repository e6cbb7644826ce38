// SPDX-License-Identifier: Apache-2.0
#include "base/log_lines.h"

#include <cctype>

#include "base/text.h"

namespace mpt {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || c == '.';
}

template <class F>
size_t length_of(std::string_view text, F&& belongs) {
  return size_t(std::find_if_not(text.begin(), text.end(), belongs) - text.begin());
}

// The value of at most 9 `digits`; -1 for any other text.
int64_t small_number(std::string_view digits) {
  const auto value = number_of<uint32_t>(digits);
  return value && digits.size() <= 9 ? int64_t(*value) : -1;
}

bool skip(std::string_view& text, std::string_view what) {
  if (!text.starts_with(what)) return false;
  text.remove_prefix(what.size());
  return true;
}

// Reads the prefixes of one line. Each function consumes one form, or leaves the text unchanged.
class PrefixReader {
 public:
  explicit PrefixReader(LogLine& line) : line_(line) {}

  void run() {
    std::string_view rest = line_.text;
    while (true) {
      const std::string_view before = rest;
      rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
      if (rest.empty() || !(bracket(rest) || time(rest) || number(rest) || actor(rest) || host(rest))) {
        line_.text = before;
        return;
      }
    }
  }

 private:
  void speak(std::string_view who, int64_t rank) {
    if (!line_.speaker.empty()) line_.speaker += ' ';
    line_.speaker += who;
    if (rank >= 0) line_.rank = rank;
  }

  // "[3]", "[rank3]:", "[default3]:", "[1,3]<stdout>:", "[prterun-host-1@1,3]<stderr>:" and "[2026-01-01
  // ...]".
  bool bracket(std::string_view& rest) {
    const size_t end = rest.find(']');
    if (rest.front() != '[' || end == std::string_view::npos || end > 80) return false;
    std::string_view inside = rest.substr(1, end - 1);
    if (std::string_view date = inside; time(date)) {
      rest.remove_prefix(end + 1);
      return true;
    }
    const std::string_view who = inside;
    if (const size_t comma = inside.rfind(','); comma != std::string_view::npos) {
      const auto job = inside.rfind('@', comma) == std::string_view::npos ? 0 : inside.rfind('@', comma) + 1;
      if (small_number(inside.substr(job, comma - job)) < 0) return false;
      inside = inside.substr(comma + 1);
    } else if (!skip(inside, "rank")) {
      skip(inside, "default");
    }
    const int64_t rank = small_number(inside);
    if (rank < 0) return false;
    speak(who, rank);
    rest.remove_prefix(end + 1);
    for (const char* stream : {"<stdout>", "<stderr>", "<stddiag>"}) skip(rest, stream);
    skip(rest, ":");
    return true;
  }

  // "2026-01-01T10:00:00.123Z" and the like, also without a date.
  static bool time(std::string_view& rest) {
    const size_t length = length_of(rest, [](char c) {
      return is_digit(c) || std::string_view("-:.,TZ+/ ").find(c) != std::string_view::npos;
    });
    const std::string_view all = rest.substr(0, length);
    const size_t colon = all.find(':');
    if (colon == std::string_view::npos || colon < 2 || colon + 5 >= all.size() ||
        !is_digit(all[colon - 1]) || !is_digit(all[colon - 2]) || !is_digit(all[colon + 1]) ||
        !is_digit(all[colon + 2]) || all[colon + 3] != ':')
      return false;
    // Numbers of the line itself may follow the time.
    size_t end = colon + 6;
    while (end < all.size() && all[end] != ' ') ++end;
    rest.remove_prefix(end);
    return true;
  }

  // "12: ".
  bool number(std::string_view& rest) {
    const size_t length = length_of(rest, is_digit);
    const int64_t rank = small_number(rest.substr(0, length));
    if (rank < 0 || !rest.substr(length).starts_with(": ")) return false;
    speak(rest.substr(0, length), rank);
    rest.remove_prefix(length + 1);
    return true;
  }

  // "(Actor pid=7, ip=10.0.0.1) ".
  bool actor(std::string_view& rest) {
    const size_t pid = rest.find(" pid="), end = rest.find(')');
    if (rest.front() != '(' || end == std::string_view::npos || pid > end) return false;
    speak(rest.substr(1, end - 1), -1);
    rest.remove_prefix(end + 1);
    return true;
  }

  // "node1: ", "10.0.0.1: ", "train/0 ", "stdout: ". A word that a program says itself, such as "step: ", has
  // no digit.
  bool host(std::string_view& rest) {
    const size_t length = length_of(rest, is_word);
    const std::string_view word = rest.substr(0, length), after = rest.substr(length);
    if (length == 0 || length > 64) return false;
    const bool stream = word == "stdout" || word == "stderr";
    if ((stream || std::any_of(word.begin(), word.end(), is_digit)) && after.starts_with(": ")) {
      if (!stream) speak(word, -1);
      rest.remove_prefix(length + 1);
      return true;
    }
    if (!after.starts_with('/')) return false;
    const std::string_view replica = after.substr(1, length_of(after.substr(1), is_digit));
    if (small_number(replica) < 0 || !after.substr(1 + replica.size()).starts_with(' ') ||
        length_of(word, is_digit) == length)
      return false;
    speak(rest.substr(0, length + 1 + replica.size()), -1);
    rest.remove_prefix(length + 1 + replica.size());
    return true;
  }

  LogLine& line_;
};

}  // namespace

std::string without_colours(std::string_view text) {
  std::string plain;
  plain.reserve(text.size());
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\x1b' || at + 1 >= text.size() || text[at + 1] != '[') {
      plain += text[at];
      continue;
    }
    // A control sequence ends with its first letter (ECMA-48, 5.4).
    at += 2;
    while (at < text.size() && (text[at] < '@' || text[at] > '~') && text[at] != '\n') ++at;
    if (at < text.size() && text[at] == '\n') plain += '\n';
  }
  return plain;
}

std::vector<LogLine> log_lines(std::string_view text) {
  std::vector<LogLine> lines;
  size_t number = 1;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find_first_of("\r\n", begin), text.size());
    if (end > begin) {
      LogLine& line = lines.emplace_back();
      line.text = text.substr(begin, end - begin);
      line.number = number;
      PrefixReader(line).run();
    }
    if (end < text.size() && text[end] == '\n') ++number;
    begin = end + 1;
  }
  return lines;
}

}  // namespace mpt
