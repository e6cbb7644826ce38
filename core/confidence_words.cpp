// SPDX-License-Identifier: Apache-2.0
#include "core/plan_words.h"

#include <fmt/format.h>

#include "base/quantity.h"

namespace mpt {

std::string describe_likelihood(double probability) {
  constexpr double kNearlyOne = 0.99;
  if (probability >= 1.0) return "100%";
  if (probability > kNearlyOne) return "over 99%";
  return fmt::format("{}%", int(100.0 * probability + 1e-9));
}

std::string describe_range(const Confidence& c) {
  if (!c.least_s || !c.most_s) return "";
  std::string least = format_seconds(*c.least_s);
  const std::string most = format_seconds(*c.most_s);
  const size_t unit = least.rfind(' ');
  if (unit != std::string::npos && least.substr(unit) == most.substr(most.rfind(' '))) least.resize(unit);
  return least + " to " + most;
}

}  // namespace mpt
