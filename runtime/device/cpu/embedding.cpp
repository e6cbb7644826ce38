// SPDX-License-Identifier: Apache-2.0

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

// Rows of a table are copied whatever their type.
void run(const Call& call, const EmbeddingForward& o) {
  const TableShape& s = o.shape;
  call.copy([&]<class T>(const T*) {
    for (int64_t t = 0; t < s.tokens; ++t) {
      const int64_t row = o.ids[t] - s.first;
      T* const to = static_cast<T*>(o.y) + t * s.hidden;
      if (row >= 0 && row < s.rows)
        std::copy_n(static_cast<const T*>(o.table) + row * s.hidden, s.hidden, to);
      else
        std::fill_n(to, s.hidden, T(0));
    }
  });
}

void run(const Call& call, const EmbeddingBackward& o) {
  const TableShape& s = o.shape;
  call.compute([&](auto& f, const auto*) {
    const auto* const dy = f.in(o.dy, s.tokens * s.hidden);
    for (int64_t t = 0; t < s.tokens; ++t) {
      const int64_t row = o.ids[t] - s.first;
      if (row < 0 || row >= s.rows) continue;
      view(f.state(o.dtable) + row * s.hidden, s.hidden) += view(dy + t * s.hidden, s.hidden);
    }
  });
}

void run(const Call& call, const PositionForward& o) {
  if (o.tokens == 0) return;
  const int64_t rows = 1 + *std::max_element(o.positions, o.positions + o.tokens);
  call.compute([&](auto& f, const auto*) {
    const auto* const table = f.in(o.table, rows * o.hidden);
    auto* const y = f.in_out(o.y, o.tokens * o.hidden);
    for (int64_t t = 0; t < o.tokens; ++t)
      view(y + t * o.hidden, o.hidden) += view(table + o.positions[t] * o.hidden, o.hidden);
  });
}

void run(const Call& call, const PositionBackward& o) {
  call.compute([&](auto& f, const auto*) {
    const auto* const dy = f.in(o.dy, o.tokens * o.hidden);
    for (int64_t t = 0; t < o.tokens; ++t)
      view(f.state(o.dtable) + o.positions[t] * o.hidden, o.hidden) += view(dy + t * o.hidden, o.hidden);
  });
}

}  // namespace mpt::runtime::cpu
