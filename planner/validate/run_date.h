// SPDX-License-Identifier: Apache-2.0
#pragma once

// When the software of a published run was released: what a framework or library did then follows from it.

#include <compare>
#include <optional>
#include <string>

namespace mpt::planner {

struct Month {
  int year = 0, month = 0;
  auto operator<=>(const Month&) const = default;
};

/// "2025-06", and days behind it. None for anything else.
std::optional<Month> parse_month(const std::string& text);

/// The release that words name: "container 25.11", "tag v24.11", an MLPerf round. None where they do not.
std::optional<Month> named_release(const std::string& words);

/// That, or else the earliest date, since a page is written after the run. None where nothing tells.
std::optional<Month> named_month(const std::string& words);

}  // namespace mpt::planner
