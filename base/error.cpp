// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <system_error>

#include "base/terminal.h"

namespace mpt {
namespace {

constexpr int kEndedByReader = 128 + SIGPIPE;  // as in a shell; it is unknown how much was left undone

// Text from a file may hold terminal commands. `found` may have several lines, such as a drawn schedule.
std::string describe(const Problem& problem) {
  std::string text = printable(problem.where);
  if (!text.empty()) text += ": ";
  text += printable_lines(problem.found);
  if (!problem.expected.empty()) text += fmt::format("; expected {}", printable_lines(problem.expected));
  if (!problem.remedy.empty()) text += fmt::format("\n    {}", printable_lines(problem.remedy));
  return text;
}

std::string describe(const std::vector<Problem>& problems) {
  return joined(mapped<std::string>(problems, [](const auto& problem) { return describe(problem); }), "\n  ");
}

// Levenshtein distance; names are short, so the quadratic table is fine.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// A shell may close a stream before the start. A file that is opened later would get its number, and with it
// the printed lines.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) >= 0) continue;
    const int opened = ::open("/dev/null", O_RDWR);  // gets the lowest number that is free
    if (opened >= 0 && opened != stream) ::close(opened);
  }
}

// Whether the error of a write to stdout means that nobody reads it. EIO on a disk is a failure.
bool is_reader_gone(int error) {
  struct stat status {};
  return error == EPIPE || (error == EIO && ::fstat(STDOUT_FILENO, &status) == 0 && S_ISCHR(status.st_mode));
}

// Breaks findings and lists of names into lines of the screen. Remedies may be commands and stay unbroken.
std::string in_lines(const std::string& text) {
  std::string out;
  for (const std::string& line : split_at(text, '\n')) {
    const bool wraps = columns_of(line) > screen_columns() && line[0] != ' ';
    out += wraps ? wrapped(line, "", screen_columns(), false) : line + "\n";
  }
  out.pop_back();
  return out;
}

// Prints the text and returns the exit code, which reports the failure even if stderr cannot be written.
int tell(int code, const std::string& text) {
  warn(text);
  return code;
}

// `print_error` gets the reason if printing failed.
int run_guarded(std::string_view program, const std::function<int()>& body, std::string& print_error) {
  try {
    return body();
  } catch (const UserError& error) {
    return tell(kExitUserError, in_lines(fmt::format("{}: error: {}", program, error.what())));
  } catch (const RunError& error) {
    return tell(kExitRunFailed, fmt::format("{}: run failed: {}", program, error.what()));
  } catch (const NoDeviceError& error) {
    return tell(kExitNoDevice, fmt::format("{}: {}", program, error.what()));
  } catch (const std::bad_alloc&) {
    return tell(kExitRunFailed, fmt::format("{}: run failed: out of memory", program));
  } catch (const std::system_error& error) {  // a full disk, no more threads
    if (is_reader_gone(error.code().value())) return kEndedByReader;
    if (std::ferror(stdout) == 0)
      return tell(kExitRunFailed, fmt::format("{}: run failed: {}", program, error.what()));
    print_error = error.code().message();
    return kExitRunFailed;
  } catch (const std::exception& error) {
    return tell(kExitInternalError,
                fmt::format("{}: internal error (please report it): {}", program, error.what()));
  }
}

// Printed lines wait in a buffer and reach their file only here. A program that loses its output has failed.
int check_printed(std::string_view program, int code, std::string print_error) {
  if (code == kEndedByReader) return code;
  const bool failed_before = std::ferror(stdout) != 0;
  if (std::fflush(stdout) != 0) {
    if (is_reader_gone(errno)) return code;
    print_error = std::strerror(errno);
  } else if (!failed_before) {
    return code;
  }
  return tell(code == kExitOk ? kExitRunFailed : code,
              fmt::format("{}: run failed: stdout cannot be written completely ({})", program,
                          print_error.empty() ? "an earlier write failed" : print_error));
}

}  // namespace

UserError::UserError(std::vector<Problem> problems)
    : std::runtime_error(describe(problems)), problems_(std::move(problems)) {}

void refuse_input(std::string where, std::string found, std::string expected, std::string remedy) {
  throw UserError(std::move(where), std::move(found), std::move(expected), std::move(remedy));
}

UserError::UserError(Problem problem) : UserError(std::vector<Problem>{std::move(problem)}) {}

UserError::UserError(std::string where, std::string found, std::string expected, std::string remedy)
    : UserError(Problem{std::move(where), std::move(found), std::move(expected), std::move(remedy)}) {}

void warn(const std::string& line) { std::fputs((line + "\n").c_str(), stderr); }

bool print_while_read(const std::function<void()>& print) {
  try {
    print();
    if (std::fflush(stdout) != 0) throw std::system_error(errno, std::generic_category());
    return true;
  } catch (const std::system_error& error) {
    if (!is_reader_gone(error.code().value()) || std::freopen("/dev/null", "w", stdout) == nullptr) throw;
    return false;
  }
}

int run_program(std::string_view program, const std::function<int()>& body) {
  open_closed_streams();
  // Short output is printed at once, at the end. Files are then written even if the reader of stdout goes
  // away.
  static std::array<char, 1 << 20> buffer;
  if (::isatty(STDOUT_FILENO) == 0) std::setvbuf(stdout, buffer.data(), _IOFBF, buffer.size());
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the limit on file sizes fails, as on a full disk
  std::signal(SIGPIPE, SIG_IGN);  // a write without a reader fails, and the work goes on
  std::string print_error;
  return check_printed(program, run_guarded(program, body, print_error), print_error);
}

std::string nearest_name(std::string_view text, const std::vector<std::string>& known) {
  const std::string wanted = lower_case(std::string(text.substr(0, 64)));
  std::string best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(wanted, lower_case(name));
    const std::string first = name.substr(0, 1);
    const bool starts_alike = !best.empty() && !best.starts_with(first) && wanted.starts_with(first);
    if (distance < best_distance + starts_alike) {
      best_distance = distance;
      best = name;
    }
  }
  return best;
}

RunError::RunError(const std::string& text) : std::runtime_error(printable_lines(text)) {}

std::string did_you_mean(std::string_view text, const std::vector<std::string>& known) {
  const std::string name = nearest_name(text, known);
  return name.empty() ? "" : fmt::format("; did you mean \"{}\"?", name);
}

namespace detail {
void check_failed(const char* expression, const char* file, int line, const std::string& message) {
  throw InternalError(fmt::format("{}:{}: {} ({})", file, line, message, expression));
}
}  // namespace detail

}  // namespace mpt
