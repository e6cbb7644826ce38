// SPDX-License-Identifier: Apache-2.0
#pragma once

// Files that are imported: their largest size, and the two refusals of those that can be read.

#include <cstdint>

#include "base/error.h"

namespace mpt::frameworks {

/// The largest file that is imported. The largest ones are MPT's own scripts for PyTorch: they list the order
/// of each pipeline rank, some megabytes with hundreds of micro-batches.
inline constexpr int64_t kMostImportedBytes = 8 << 20;

/// The file can be read, but the framework itself refuses its layout.
class FrameworkRefusal final : public UserError {
 public:
  using UserError::UserError;
};

/// The file can be read, but plans do not describe such a training.
class NotJudged final : public UserError {
 public:
  using UserError::UserError;
};

}  // namespace mpt::frameworks
