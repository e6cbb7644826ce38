// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mpt {

inline constexpr const char* kVersion = "0.3.0";

/// "mpt 0.3.0", then one line for each choice that the build made.
std::string version_text();

/// A digest of the files that are built in (cmake/MptTargets.cmake): models, GPUs, kernels, frameworks,
/// constants, published runs.
std::string data_digest();

}  // namespace mpt
