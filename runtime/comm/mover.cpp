// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/mover.h"

#include <cstring>

#include "runtime/comm/reduction.h"

namespace mpt::runtime {
namespace {

class HostMover final : public Mover {
 public:
  void move(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0 && to != from) std::memmove(to, from, size_t(bytes));
  }
  void reduce(DataType type, ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin,
              int64_t end, void* to) override {
    reduce_in_order(type, operation, parts, begin, end, to);
  }
  void finish() override {}
};

}  // namespace

Mover& host_mover() {
  static HostMover mover;
  return mover;
}

}  // namespace mpt::runtime
