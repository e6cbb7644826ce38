// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <fmt/ranges.h>

#include <vector>

#include "base/quantity.h"

namespace mpt {
namespace {

std::string fates(const SearchCertificate& c) {
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{} {}", format_count(count), what));
  };
  add(c.over_memory, c.over_memory == 1 ? "does not fit" : "do not fit");
  add(c.over_bound, c.over_bound == 1 ? "is provably slower" : "are provably slower");
  add(c.same, c.same == 1 ? "is a duplicate" : "are duplicates");
  add(c.not_reached, "not reached");
  add(c.simulated, "simulated in full");
  return fmt::format("{}", fmt::join(parts, ", "));
}

// The plan may be slower than the fastest: a tied plan was preferred (core/ties.h).
std::string distance(const SearchCertificate& c, double step_time_s) {
  if (c.fastest_s <= 0.0 || step_time_s <= c.fastest_s) return "none is faster by MPT's model";
  const double less = 1.0 - c.fastest_s / step_time_s;
  return fmt::format("by MPT's model a layout {} faster exists, which is less simple or larger",
                     less < 5e-4 ? "under 0.1%" : format_percent(less));
}

}  // namespace

std::string describe_certificate(const SearchCertificate& c, double step_time_s,
                                 std::optional<double> waited_s) {
  const std::string time = format_seconds(waited_s.value_or(c.seconds));
  if (c.optimal)
    return fmt::format("Searched all {} layouts in {}: {}; {}.", format_count(c.layouts), time, fates(c),
                       distance(c, step_time_s));
  const std::string gap = c.gap >= 1.0 ? "the best may be any amount faster, since not all was bounded"
                                       : fmt::format("the best is at most {} faster", format_percent(c.gap));
  return fmt::format("Stopped after {}: of {}{} layouts {}; {}.", time, c.counted ? "" : "at least ",
                     format_count(c.layouts), fates(c), gap);
}

}  // namespace mpt
