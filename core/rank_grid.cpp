// SPDX-License-Identifier: Apache-2.0
#include "core/rank_grid.h"

#include "core/error.h"

namespace mpt {

RankCoordinates RankGrid::coordinates(int64_t rank) const {
  MPT_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  return {rank % tensor_, rank / tensor_ % data_, rank / (tensor_ * data_)};
}

int64_t RankGrid::rank(const RankCoordinates& at) const {
  return at.tensor + tensor_ * (at.data + data_ * at.pipeline);
}

int64_t RankGrid::degree(Axis axis) const {
  return axis == Axis::tensor ? tensor_ : axis == Axis::data ? data_ : pipeline_;
}

int64_t RankGrid::stride(Axis axis) const {
  return axis == Axis::tensor ? 1 : axis == Axis::data ? tensor_ : tensor_ * data_;
}

std::vector<int64_t> RankGrid::group(int64_t rank, Axis axis) const {
  const RankCoordinates at = coordinates(rank);
  const int64_t own = axis == Axis::tensor ? at.tensor : axis == Axis::data ? at.data : at.pipeline;
  std::vector<int64_t> members;
  for (int64_t i = 0; i < degree(axis); ++i) members.push_back(rank + (i - own) * stride(axis));
  return members;
}

std::vector<int64_t> RankGrid::model_group(int64_t rank) const {
  const int64_t data = coordinates(rank).data;
  std::vector<int64_t> members;
  for (int64_t p = 0; p < pipeline_; ++p) {
    for (int64_t t = 0; t < tensor_; ++t) members.push_back(this->rank({t, data, p}));
  }
  return members;
}

}  // namespace mpt
