// SPDX-License-Identifier: Apache-2.0
#include "planner/validate/run_date.h"

#include <algorithm>
#include <regex>

#include "planner/validate/word_trace.h"

namespace mpt::planner {
namespace {

Month month_of(const std::string& year, const std::string& month) {
  return {std::stoi(year) + (year.size() == 2 ? 2000 : 0), std::stoi(month)};
}

// Each match of a pattern of two groups, year and month: the earliest.
std::optional<Month> earliest(const std::string& words, const std::regex& pattern,
                              const std::source_location& reader = std::source_location::current()) {
  std::optional<Month> first;
  for (std::sregex_iterator found(words.begin(), words.end(), pattern), end; found != end; ++found) {
    const Month month = month_of((*found)[1], (*found)[2]);
    if (first && *first <= month) continue;
    first = month;
    WordTrace::note(found->str(), reader);
  }
  return first;
}

// When results were published (mlcommons.org, "MLPerf Training").
struct Round {
  const char* name;
  Month month;
};
constexpr Round kRounds[] = {{"results_v3.0", {2023, 6}}, {"results_v3.1", {2023, 11}},
                             {"results_v4.0", {2024, 6}}, {"results_v4.1", {2024, 11}},
                             {"results_v5.0", {2025, 6}}, {"results_v5.1", {2025, 11}}};

}  // namespace

std::optional<Month> parse_month(const std::string& text) {
  static const std::regex date(R"((20[12]\d)-(0[1-9]|1[0-2])(-\d\d)?)");
  std::smatch found;
  if (!std::regex_match(text, found, date)) return std::nullopt;
  return month_of(found[1], found[2]);
}

std::optional<Month> named_release(const std::string& words) {
  static const std::regex release(R"((?:container |NeMo |tag v|ngc|First )(2\d)\.(0[1-9]|1[0-2])(?!\d))");
  if (const auto found = earliest(words, release)) return found;
  for (const Round& round : kRounds) {
    if (words.find(round.name) == std::string::npos) continue;
    WordTrace::note(round.name, std::source_location::current());
    return round.month;
  }
  return std::nullopt;
}

std::optional<Month> named_month(const std::string& words) {
  static const std::regex date(R"((?:\b|_)(20[12]\d)-?(0[1-9]|1[0-2])(?:[-_]|\b))"),
      preprint(R"(arXiv:(\d\d)(0[1-9]|1[0-2])\.\d{4})");
  if (const auto found = named_release(words)) return found;
  const auto found = earliest(words, date);
  return found ? found : earliest(words, preprint);
}

}  // namespace mpt::planner
