// SPDX-License-Identifier: Apache-2.0
#include "core/error.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <numeric>

namespace mpt {
namespace {

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
  std::string text;
  for (const Problem& problem : problems) {
    if (!text.empty()) text += "\n  ";
    text += describe(problem);
  }
  return text;
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

std::string lower_case(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

}  // namespace

UserError::UserError(std::vector<Problem> problems)
    : std::runtime_error(describe(problems)), problems_(std::move(problems)) {}

UserError::UserError(Problem problem) : UserError(std::vector<Problem>{std::move(problem)}) {}

int run_program(std::string_view program, const std::function<int()>& body) {
  try {
    return body();
  } catch (const UserError& error) {
    fmt::print(stderr, "{}: error: {}\n", program, error.what());
    return kExitUserError;
  } catch (const RunError& error) {
    fmt::print(stderr, "{}: run failed: {}\n", program, error.what());
    return kExitRunFailed;
  } catch (const NoDeviceError& error) {
    fmt::print(stderr, "{}: {}\n", program, error.what());
    return kExitNoDevice;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "{}: run failed: out of memory\n", program);
    return kExitRunFailed;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: internal error (please report it): {}\n", program, error.what());
    return kExitInternalError;
  }
}

std::string nearest_name(std::string_view text, const std::vector<std::string>& known) {
  const std::string wanted = lower_case(text.substr(0, 64));
  std::string best;
  size_t best_distance = std::max<size_t>(2, wanted.size() / 3) + 1;
  for (const std::string& name : known) {
    const size_t distance = edit_distance(wanted, lower_case(name));
    if (distance < best_distance) {
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
