// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <string>

namespace mpt {

/// A number from `low` to `high`. CLI::Range would take "nan", too.
inline CLI::Validator number_between(double low, double high) {
  const CLI::Range range(low, high);
  const auto check = [range, low, high](std::string& text) -> std::string {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value != value) return "Value " + text + " is no number";
    if (range(text).empty()) return "";
    return fmt::format("Value {} not in range [{:.12g} - {:.12g}]", text, low, high);
  };
  return {check, range.get_description()};
}

}  // namespace mpt
