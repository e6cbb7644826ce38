// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "core/quantity.h"

namespace mpt {
namespace {

constexpr int kMaxDepth = 64;

// Refuses deep nesting and duplicate keys, both of which the library would accept.
class Guard {
 public:
  explicit Guard(std::string where) : where_(std::move(where)) {}

  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (depth > kMaxDepth)
      fail(fmt::format("nesting deeper than {} levels", kMaxDepth), "flatten the document");
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.back().insert(parsed.get<std::string>()).second) {
      fail(fmt::format("the key \"{}\" stands twice", parsed.get<std::string>().substr(0, 80)), "remove one");
    }
    return true;
  }

 private:
  [[noreturn]] void fail(std::string found, std::string remedy) const {
    throw UserError(Problem{where_, std::move(found), "", std::move(remedy)});
  }

  std::string where_;
  std::vector<std::set<std::string>> keys_;
};

std::string place_of(const std::string& text, size_t byte) {
  const size_t end = std::min(byte, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  const size_t line_start = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = line_start == std::string::npos ? end : end - line_start - 1;
  return fmt::format("line {}, column {}", line, std::max<size_t>(column, 1));
}

}  // namespace

std::string read_file(const std::filesystem::path& file, int64_t max_bytes) {
  std::error_code error;
  if (std::filesystem::is_directory(file, error)) {
    throw UserError(Problem{file.string(), "is a folder", "a file", ""});
  }
  std::ifstream in(file, std::ios::binary);
  if (!in) {
    throw UserError(Problem{file.string(), fmt::format("cannot be read ({})", std::strerror(errno)),
                            "a readable file", "check the path"});
  }
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (static_cast<int64_t>(text.size()) > max_bytes) {
      throw UserError(Problem{file.string(), fmt::format("larger than {}", format_bytes(double(max_bytes))),
                              "a smaller file", ""});
    }
  }
  return text;
}

Json parse_json(const std::string& text, const std::string& where) {
  try {
    return Json::parse(text, Guard(where));
  } catch (const Json::parse_error& error) {
    const std::string remedy =
        text.empty() ? "the file is empty" : "is the file complete? (error: a cut-off or malformed document)";
    throw UserError(Problem{where, fmt::format("not valid JSON at {}", place_of(text, error.byte)),
                            "a JSON document", remedy});
  } catch (const Json::exception& error) {
    throw UserError(Problem{where, fmt::format("not usable JSON ({})", error.what()), "a JSON document", ""});
  }
}

Json load_json(const std::filesystem::path& file, int64_t max_bytes) {
  return parse_json(read_file(file, max_bytes), file.string());
}

void JsonProblems::add(const std::string& pointer, std::string found, std::string expected,
                       std::string remedy) {
  constexpr size_t kMaxProblems = 20;  // more help nobody, and a hostile file could hold millions
  if (problems_.size() >= kMaxProblems) return;
  const std::string where = pointer.empty() ? file_ : file_ + " at " + pointer;
  problems_.push_back({where, std::move(found), std::move(expected), std::move(remedy)});
}

void JsonProblems::throw_if_any() const {
  if (!problems_.empty()) throw UserError(problems_);
}

namespace detail {

std::string describe_json(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "\"" + value.get<std::string>().substr(0, 80) + "\"";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    default:
      return "the number " + value.dump();
  }
}

std::string escape_pointer(const std::string& key) {
  std::string out;
  for (const char c : key.substr(0, 80)) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

bool check_range(double value, const std::string& pointer, const FieldRule& rule, JsonProblems& problems) {
  if (value >= rule.minimum && value <= rule.maximum) return true;
  const std::string expected = std::isinf(rule.maximum)
                                   ? fmt::format("at least {}", rule.minimum)
                                   : fmt::format("between {} and {}", rule.minimum, rule.maximum);
  problems.add(pointer, fmt::format("the number {}", value), expected);
  return false;
}

}  // namespace detail

namespace {

// Pipes and devices, also behind a link, and open files that have lost their name (/dev/stdout may be one):
// renaming would put a file in their stead.
bool is_written_in_place(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) return false;
  if (!std::filesystem::is_regular_file(status)) return true;
  const auto target = std::filesystem::canonical(file, error);
  return error || !std::filesystem::exists(target, error);
}

// Where a link leads, so that the file behind it is replaced and not the link.
std::filesystem::path behind_links(const std::filesystem::path& file) {
  std::error_code error;
  const auto target = std::filesystem::canonical(file, error);
  return error ? file : target;
}

int open_or_throw(const std::string& file, int flags, const std::string& where) {
  const int descriptor = ::open(file.c_str(), flags | O_WRONLY | O_CLOEXEC, 0644);
  if (descriptor >= 0) return descriptor;
  throw UserError(Problem{where, fmt::format("cannot be written ({})", std::strerror(errno)),
                          "a path in a folder that exists and can be written", ""});
}

bool write_all(int descriptor, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<size_t>(n);
  }
  return true;
}

std::string temporary_beside(const std::filesystem::path& file) {
  return fmt::format("{}.tmp.{}", file.string(), ::getpid());
}

}  // namespace

void write_file_atomically(const std::filesystem::path& file, const std::string& text) {
  const bool in_place = is_written_in_place(file);
  const auto target = in_place ? file : behind_links(file);
  const std::string written = in_place ? file.string() : temporary_beside(target);
  const int descriptor = open_or_throw(written, in_place ? 0 : O_CREAT | O_TRUNC, file.string());
  bool ok = write_all(descriptor, text) && (in_place || ::fsync(descriptor) == 0);
  ok = (::close(descriptor) == 0) && ok;
  ok = ok && (in_place || ::rename(written.c_str(), target.c_str()) == 0);
  if (ok) return;
  const RunError error(
      fmt::format("{}: cannot be written completely ({})", file.string(), std::strerror(errno)));
  if (!in_place) ::unlink(written.c_str());
  throw error;
}

void check_writable(const std::filesystem::path& file, const std::string& where) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw UserError(Problem{where, "cannot be written (it is a folder)", "a file", ""});
  }
  if (is_written_in_place(file)) {
    if (::access(file.c_str(), W_OK) == 0) return;
    throw UserError(Problem{where, fmt::format("cannot be written ({})", std::strerror(errno)), "", ""});
  }
  const std::string temporary = temporary_beside(behind_links(file));
  ::close(open_or_throw(temporary, O_CREAT | O_TRUNC, where));
  ::unlink(temporary.c_str());
}

}  // namespace mpt
