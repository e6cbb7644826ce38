// SPDX-License-Identifier: Apache-2.0
#pragma once

// TensorSource: weights by global name and position, independent of the split in which they were saved.

#include <string>
#include <vector>

#include "base/fields.h"
#include "runtime/nn/parameters.h"

namespace mpt::runtime {

/// The stored parts of a weight: its value in full precision, and the optimizer's moments.
enum class TensorKind { value, first_moment, second_moment };

class TensorSource {
 public:
  virtual ~TensorSource() = default;
  /// Whether the source has nothing of a weight that may be initialized from the seed.
  virtual bool lacks(const std::string& /*name*/) const { return false; }
  /// Rectangle `block` of the global weight `name`, row by row. Throws UserError if any of it is missing.
  virtual void read(TensorKind kind, const std::string& name, const ShardBlock& block, double* out) const = 0;
};

/// This rank's part of a parameter; padding is zero.
std::vector<double> read_part(const TensorSource& source, TensorKind kind, const Parameter& parameter);

}  // namespace mpt::runtime
