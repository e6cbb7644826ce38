// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
void embedding_forward(const TableShape& s, const int32_t* ids, const T* table, T* y) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const int64_t row = ids[t] - s.first;
    if (row >= 0 && row < s.rows) {
      std::copy_n(table + row * s.hidden, s.hidden, y + t * s.hidden);
    } else {
      std::fill_n(y + t * s.hidden, s.hidden, T(0));
    }
  }
}

template <class T>
void embedding_backward(const TableShape& s, const int32_t* ids, const T* dy, T* dtable) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    const int64_t row = ids[t] - s.first;
    if (row < 0 || row >= s.rows) continue;
    ArrayView<T>(dtable + row * s.hidden, s.hidden) += ConstArrayView<T>(dy + t * s.hidden, s.hidden);
  }
}

template <class T>
void position_forward(int64_t tokens, int64_t hidden, const int32_t* positions, const T* table, T* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    ArrayView<T>(y + t * hidden, hidden) += ConstArrayView<T>(table + positions[t] * hidden, hidden);
  }
}

template <class T>
void position_backward(int64_t tokens, int64_t hidden, const int32_t* positions, const T* dy, T* dtable) {
  for (int64_t t = 0; t < tokens; ++t) {
    ArrayView<T>(dtable + positions[t] * hidden, hidden) += ConstArrayView<T>(dy + t * hidden, hidden);
  }
}

}  // namespace

// Rows of a table are copied whatever their type.
void run(const Call& call, const EmbeddingForward& o) {
  call.copy([&]<class T>(const T*) {
    embedding_forward(o.shape, o.ids, static_cast<const T*>(o.table), static_cast<T*>(o.y));
  });
}

void run(const Call& call, const EmbeddingBackward& o) {
  call.compute([&](auto& f) {
    embedding_backward(o.shape, o.ids, f.in(o.dy, o.shape.tokens * o.shape.hidden), f.state(o.dtable));
  });
}

void run(const Call& call, const PositionForward& o) {
  if (o.tokens == 0) return;
  const int64_t rows = 1 + *std::max_element(o.positions, o.positions + o.tokens);
  call.compute([&](auto& f) {
    position_forward(o.tokens, o.hidden, o.positions, f.in(o.table, rows * o.hidden),
                     f.in_out(o.y, o.tokens * o.hidden));
  });
}

void run(const Call& call, const PositionBackward& o) {
  call.compute([&](auto& f) {
    position_backward(o.tokens, o.hidden, o.positions, f.in(o.dy, o.tokens * o.hidden), f.state(o.dtable));
  });
}

}  // namespace mpt::runtime::cpu
