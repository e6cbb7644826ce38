// SPDX-License-Identifier: Apache-2.0
#pragma once

// RankGrid: who is in which group. The only place that turns a rank number into coordinates.
// Tensor varies fastest (it talks most and gets the innermost links), then data, then pipeline: the order
// that Megatron-LM uses by default.

#include <cstdint>
#include <vector>

#include "core/layout.h"

namespace mpt {

struct RankCoordinates {
  int64_t tensor = 0;
  int64_t data = 0;
  int64_t pipeline = 0;
  bool operator==(const RankCoordinates&) const = default;
};

enum class Axis { tensor, data, pipeline };

class RankGrid {
 public:
  explicit RankGrid(const Layout& layout)
      : tensor_(layout.tensor), data_(layout.data), pipeline_(layout.pipeline) {}

  int64_t ranks() const { return tensor_ * data_ * pipeline_; }
  RankCoordinates coordinates(int64_t rank) const;
  int64_t rank(const RankCoordinates& at) const;

  int64_t degree(Axis axis) const;
  /// Distance in rank numbers between neighbours along the axis.
  int64_t stride(Axis axis) const;
  /// Ranks that differ from `rank` only along the axis, in order along it.
  std::vector<int64_t> group(int64_t rank, Axis axis) const;
  /// Ranks that hold one replica of the model: all with the data coordinate of `rank`.
  std::vector<int64_t> model_group(int64_t rank) const;

 private:
  int64_t tensor_, data_, pipeline_;
};

}  // namespace mpt
