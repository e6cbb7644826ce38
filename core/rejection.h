// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mpt {

/// Why a layout is out. A value, not an exception: a search meets millions of these.
struct Rejection {
  std::string constraint;  // "memory", "divides", "schedule", ...
  int stage = -1;          // the virtual stage where it failed, or -1
  double needed = 0.0;     // in the constraint's own unit (bytes for memory)
  double available = 0.0;
  std::string reason;  // one sentence for a person
};

}  // namespace mpt
