// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace mpt {

/// Seconds of a clock that only goes forward; differences mean something, values do not.
inline double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// now_s() when the program was loaded, before main().
inline const double kLoadedAt_s = now_s();
/// Seconds that a person has waited since the program was loaded.
inline double waited_s() { return now_s() - kLoadedAt_s; }

}  // namespace mpt
