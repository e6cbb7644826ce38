// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/reduction.h"

#include <algorithm>

namespace mpt::runtime {
namespace {

// In blocks that stay in the first cache while every part is added to them.
constexpr int64_t kBlock = 2048;

template <class T, class F>
void reduce(const std::vector<const void*>& parts, int64_t begin, int64_t end, T* to, F&& combine) {
  T sum[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    std::copy_n(static_cast<const T*>(parts.front()) + at, count, sum);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = static_cast<const T*>(parts[p]) + at;
      for (int64_t i = 0; i < count; ++i) sum[i] = combine(sum[i], part[i]);
    }
    std::copy_n(sum, count, to + (at - begin));
  }
}

template <class T>
void reduce(ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin, int64_t end,
            void* to) {
  if (operation == ReduceOperation::sum) {
    reduce(parts, begin, end, static_cast<T*>(to), [](T a, T b) { return a + b; });
  } else {
    reduce(parts, begin, end, static_cast<T*>(to), [](T a, T b) { return std::max(a, b); });
  }
}

}  // namespace

int64_t size_of(DataType type) { return type == DataType::float32 ? 4 : 8; }

void reduce_in_order(DataType type, ReduceOperation operation, const std::vector<const void*>& parts,
                     int64_t begin, int64_t end, void* to) {
  type == DataType::float32 ? reduce<float>(operation, parts, begin, end, to)
                            : reduce<double>(operation, parts, begin, end, to);
}

}  // namespace mpt::runtime
