// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace mpt {

/// A number from `low` to `high`. CLI::Range would take "nan", too.
inline CLI::Validator number_between(double low, double high) {
  const CLI::Range range(low, high);
  const auto check = [range](std::string& text) -> std::string {
    double value = 0.0;
    if (CLI::detail::lexical_cast(text, value) && value != value) return "Value " + text + " is no number";
    return range(text);
  };
  return {check, range.get_description()};
}

}  // namespace mpt
