// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>
#include <random>

#include "base/outputs.h"
#include "base/quantity.h"
#include "base/text.h"
#include "base/values.h"

namespace mpt {
namespace {

constexpr size_t kMaxDepth = 64;

std::string place_of(const std::string& text, size_t byte) {
  const size_t end = std::min(byte, text.size());
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n');
  const size_t line_start = end == 0 ? std::string::npos : text.rfind('\n', end - 1);
  const size_t column = line_start == std::string::npos ? end : end - line_start - 1;
  return fmt::format("line {}, column {}", line, std::max<size_t>(column, 1));
}

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

[[noreturn]] void refuse_to_write(const std::string& where) {
  throw UserError(Problem{where, fmt::format("cannot be written ({})", std::strerror(errno)),
                          "a path in a folder that exists and can be written", ""});
}

int open_in_place(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) refuse_to_write(file);
  return descriptor;
}

constexpr std::string_view kTemporary = ".mpt-", kTemporaryEnd = ".tmp";

// A new file in the target's folder. Its name cannot be guessed, and O_EXCL follows no link, so nobody who
// writes in the folder too can have put another file in its place. It does not grow with the target's name.
struct Temporary {
  std::string file;
  int descriptor = -1;
};
Temporary open_beside(const std::filesystem::path& target, const std::string& where) {
  constexpr int kTries = 16;
  std::random_device random;
  for (int i = 0; i < kTries; ++i) {
    const auto name =
        target.parent_path() / fmt::format("{}{:08x}{:08x}{}", kTemporary, random(), random(), kTemporaryEnd);
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (descriptor >= 0) return {name.string(), descriptor};
    if (errno != EEXIST) break;
  }
  refuse_to_write(where);
}

// Who may read a file is no business of a program that writes it anew.
void keep_permissions(const std::filesystem::path& target, int descriptor) {
  constexpr mode_t kPermissions = 0777;
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0) (void)!::fchmod(descriptor, status.st_mode & kPermissions);
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

}  // namespace

std::string read_file(const std::filesystem::path& file, int64_t max_bytes) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::is_directory(status)) {
    throw UserError(Problem{file.string(), "is a folder", "a file", ""});
  }
  // A pipe would be waited for until somebody writes to it, and a device may have no end. A pipe without a
  // name, such as a shell's <(command), has its writer.
  const bool is_nameless =
      std::filesystem::is_fifo(status) && std::filesystem::canonical(file, error).empty();
  if (std::filesystem::is_other(status) && !is_nameless)
    throw UserError(Problem{file.string(), "is no regular file", "a readable file", "check the path"});
  files_of_program().reads(file);
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
  WorkBudget budget(where, kMostJsonBytes);
  return parse_json(text, budget);
}

Json parse_json(const std::string& text, WorkBudget& budget) {
  const std::string& where = budget.file();
  try {
    DocumentBuilder builder(budget, kMaxDepth, DocumentBuilder::Doubled::refused);
    Json::sax_parse(text, &builder);
    return builder.take();
  } catch (const Json::parse_error& error) {
    const std::string remedy =
        text.empty() ? "the file is empty" : "is the file complete? (error: a cut-off or malformed document)";
    throw UserError(Problem{where, fmt::format("not valid JSON at {}", place_of(text, error.byte)),
                            "a JSON document", remedy});
  } catch (const Json::out_of_range&) {
    throw UserError(Problem{where, "a number that is too large", "numbers below 1e308", ""});
  } catch (const Json::exception& error) {
    throw UserError(Problem{where, fmt::format("not usable JSON ({})", error.what()), "a JSON document", ""});
  }
}

std::optional<Json> json_of(const std::string& text) {
  try {
    return parse_json(text, "");
  } catch (const UserError&) {
    return std::nullopt;
  }
}

Json load_json(const std::filesystem::path& file, int64_t max_bytes) {
  return parse_json(read_file(file, max_bytes), file.string());
}

std::string json_text(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

void JsonProblems::add(const std::string& pointer, std::string found, std::string expected,
                       std::string remedy) {
  if (full()) return;
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
      return fmt::format("\"{}\"", cut_text(value.get_ref<const std::string&>(), 80));
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

bool check_text(const std::string& text, const std::string& pointer, const FieldRule& rule,
                JsonProblems& problems) {
  if (text.size() > rule.most_text_bytes) {
    problems.add(pointer, fmt::format("a text of {} bytes", text.size()),
                 fmt::format("at most {} bytes", rule.most_text_bytes));
    return false;
  }
  if (is_printable(text)) return true;
  problems.add(pointer, fmt::format("the text \"{}\"", printable(cut_text(text, 80))),
               "a text without control characters and line ends");
  return false;
}

}  // namespace detail

void write_file_atomically(const std::filesystem::path& file, const std::string& text) {
  files_of_program().check();
  const bool in_place = is_written_in_place(file);
  const auto target = in_place ? file : behind_links(file);
  const Temporary out =
      in_place ? Temporary{file.string(), open_in_place(file.string())} : open_beside(target, file.string());
  if (!in_place) keep_permissions(target, out.descriptor);
  bool ok = write_all(out.descriptor, text) && (in_place || ::fsync(out.descriptor) == 0);
  ok = (::close(out.descriptor) == 0) && ok;
  ok = ok && (in_place || ::rename(out.file.c_str(), target.c_str()) == 0);
  if (ok) return;
  const RunError error(
      fmt::format("{}: cannot be written completely ({})", file.string(), std::strerror(errno)));
  if (!in_place) ::unlink(out.file.c_str());
  throw error;
}

bool is_temporary_name(std::string_view name) {
  return name.starts_with(kTemporary) && name.ends_with(kTemporaryEnd);
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
  const auto target = behind_links(file);
  if (target.filename().string().size() > size_t(NAME_MAX)) {
    errno = ENAMETOOLONG;
    refuse_to_write(where);
  }
  const Temporary out = open_beside(target, where);
  ::close(out.descriptor);
  ::unlink(out.file.c_str());
}

}  // namespace mpt
