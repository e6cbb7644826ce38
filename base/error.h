// SPDX-License-Identifier: Apache-2.0
#pragma once

// The three kinds of error of this project are defined here and in core/layout.h:
//   UserError   wrong input: names the place, the finding, the allowed values and the remedy. Exit code 2.
//   Rejection   an impossible layout: a value, since a search meets millions (core/layout.h).
//   MPT_CHECK   a broken invariant, that is a defect of this program. Exit code 70.

#include <fmt/format.h>

#include <exception>
#include <functional>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"

namespace mpt {

inline constexpr int kExitOk = 0;
inline constexpr int kExitRunFailed = 1;       // a run that started and could not finish
inline constexpr int kExitUserError = 2;       // wrong input
inline constexpr int kExitNoDevice = 3;        // asked for a GPU and there is none
inline constexpr int kExitMayNotFit = 4;       // a checked layout is less than 90 % likely to fit
inline constexpr int kExitInterrupted = 130;   // stopped by SIGINT or SIGTERM, after printing its results
inline constexpr int kExitInternalError = 70;  // a defect of this program

/// One mistake in the input.
struct Problem {
  std::string where;     // file and JSON pointer, or command-line option
  std::string found;     // the value in the input
  std::string expected;  // allowed values
  std::string remedy;    // what to do; may be empty
};

/// Wrong input. Carries every problem found in one file, not just the first.
class UserError : public std::runtime_error {
 public:
  explicit UserError(std::vector<Problem> problems);
  explicit UserError(Problem problem);
  UserError(std::string where, std::string found, std::string expected, std::string remedy = "");

  const std::vector<Problem>& problems() const { return problems_; }

 private:
  std::vector<Problem> problems_;
};

/// Throws a UserError with one problem.
[[noreturn]] void refuse_input(std::string where, std::string found, std::string expected,
                               std::string remedy = "");

/// A run that began and failed: a dead rank, a full disk, a loss that is not finite. Exit code 1.
/// The text may come from another process or a file, so it is made printable (base/text.h).
class RunError : public std::runtime_error {
 public:
  explicit RunError(const std::string& text);
};

template <class... Values>
[[noreturn]] void fail_run(fmt::format_string<Values...> text, Values&&... values) {
  throw RunError(fmt::format(text, std::forward<Values>(values)...));
}

/// A GPU was asked for and none can be used. The message gives the reason in one line. Exit code 3.
class NoDeviceError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A broken invariant. Exit code 70.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Prints a line to stderr. If stderr cannot be written, as after its terminal was closed, work goes on.
void warn(const std::string& line);

/// Calls `print`, which prints to stdout, and flushes. If nobody reads stdout any more (a closed pipe or
/// terminal), it becomes /dev/null and this returns false. Throws std::system_error for other failures.
bool print_while_read(const std::function<void()>& print);

/// Runs `body` and turns exceptions into a message on stderr and an exit code. A reader of stdout that goes
/// away, as in "| head", is no failure and gets no message.
int run_program(std::string_view program, const std::function<int()>& body);

/// The name of `known` nearest to `text` by edit distance, or empty if none is near.
std::string nearest_name(std::string_view text, const std::vector<std::string>& known);

/// "; did you mean \"x\"?" or empty.
std::string did_you_mean(std::string_view text, const std::vector<std::string>& known);

/// "one of a, b, c", as Problem::expected.
inline std::string one_of(const std::vector<std::string>& known) { return "one of " + joined(known, ", "); }

namespace detail {
[[noreturn]] void check_failed(const char* text, const char* file, int line, const std::string& message);
}  // namespace detail

/// The text of an exception of a run. "std::bad_alloc" of the standard library is replaced by a sentence.
inline std::string failure_text(const std::exception& error) {
  const bool out_of_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return out_of_memory ? "out of memory: this machine has too little for the run" : error.what();
}

}  // namespace mpt

/// MPT_CHECK(condition, "format", args...): throws InternalError with the place and the message.
#define MPT_CHECK(condition, ...)                                                              \
  do {                                                                                         \
    if (!(condition)) {                                                                        \
      ::mpt::detail::check_failed(#condition, __FILE__, __LINE__, ::fmt::format(__VA_ARGS__)); \
    }                                                                                          \
  } while (false)
