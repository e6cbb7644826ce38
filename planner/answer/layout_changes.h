// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small changes of a layout that people make, or forget, and what they come to.

#include <optional>
#include <span>

#include "planner/api.h"

namespace mpt::planner {

struct LayoutChange {
  const char *option, *words;  // "--recompute full", and what it is called
  bool saves_memory;
  bool (*make)(Layout& layout);  // false where it is in force already
};
/// Those that save memory come in the order in which people try them.
std::span<const LayoutChange> layout_changes();

/// The request with this layout; nothing where there is none, or its framework does not run it.
std::optional<Estimated> estimate_instead(PlanRequest request, const Layout& layout);

/// "--recompute full or --offload on": what would save memory and is not in force.
std::string memory_savers(Layout layout);

}  // namespace mpt::planner
