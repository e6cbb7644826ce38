// SPDX-License-Identifier: Apache-2.0
#include "core/rank_grid.h"

#include "base/error.h"

namespace mpt {

RankGrid::RankGrid(const Layout& l) : degree_{l.tensor, l.context, l.data, l.pipeline} {
  const bool data_outermost = l.order == RankOrder::data_outermost;
  const Axis innermost_first[] = {Axis::tensor, Axis::context, data_outermost ? Axis::pipeline : Axis::data,
                                  data_outermost ? Axis::data : Axis::pipeline};
  int64_t stride = 1;
  for (const Axis axis : innermost_first) {
    stride_[size_t(axis)] = stride;
    stride *= degree(axis);
  }
}

int64_t RankGrid::ranks() const { return degree_[0] * degree_[1] * degree_[2] * degree_[3]; }

RankCoordinates RankGrid::coordinates(int64_t rank) const {
  MPT_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  const auto along = [&](Axis axis) { return rank / stride(axis) % degree(axis); };
  return {along(Axis::tensor), along(Axis::data), along(Axis::pipeline), along(Axis::context)};
}

int64_t RankGrid::rank(const RankCoordinates& at) const {
  return at.tensor * stride(Axis::tensor) + at.context * stride(Axis::context) +
         at.data * stride(Axis::data) + at.pipeline * stride(Axis::pipeline);
}

std::vector<int64_t> RankGrid::group(int64_t rank, Axis axis) const {
  MPT_CHECK(rank >= 0 && rank < ranks(), "rank {} of {}", rank, ranks());
  const int64_t own = rank / stride(axis) % degree(axis);
  std::vector<int64_t> members;
  for (int64_t i = 0; i < degree(axis); ++i) members.push_back(rank + (i - own) * stride(axis));
  return members;
}

}  // namespace mpt
