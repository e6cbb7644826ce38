// SPDX-License-Identifier: Apache-2.0
#pragma once

// How sure a prediction is, in words: the one home of them.

#include <string>

#include "core/confidence.h"

namespace mpt {

/// "97%", rounded down; "over 99%".
std::string describe_likelihood(double probability);
/// "26.9 to 31.4 s"; empty where no run tells.
std::string describe_range(const Confidence& confidence);

}  // namespace mpt
