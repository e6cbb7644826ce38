// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankGrid: who is in which group. The only place that turns a rank number into coordinates.
// Tensor varies fastest (it talks most and gets the innermost links), then context, then data, then pipeline:
// the order that Megatron-LM uses by default. RankOrder::data_outermost swaps the last two.

#include <array>
#include <cstdint>
#include <vector>

#include "core/layout.h"

namespace mpt {

struct RankCoordinates {
  int64_t tensor = 0, data = 0, pipeline = 0, context = 0;
  bool operator==(const RankCoordinates&) const = default;
};

enum class Axis { tensor, context, data, pipeline };

class RankGrid {
 public:
  explicit RankGrid(const Layout& layout);

  int64_t ranks() const;
  RankCoordinates coordinates(int64_t rank) const;
  int64_t rank(const RankCoordinates& at) const;

  int64_t degree(Axis axis) const { return degree_[size_t(axis)]; }
  /// Distance in rank numbers between neighbours along the axis.
  int64_t stride(Axis axis) const { return stride_[size_t(axis)]; }
  /// Ranks that differ from `rank` only along the axis, in order along it.
  std::vector<int64_t> group(int64_t rank, Axis axis) const;

 private:
  std::array<int64_t, 4> degree_, stride_;  // by Axis
};

}  // namespace mpt
