// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {

template <class T>
void embedding_forward(int64_t tokens, int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                       const T* table, T* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = ids[t] - first;
    if (row >= 0 && row < rows) {
      std::copy_n(table + row * hidden, hidden, y + t * hidden);
    } else {
      std::fill_n(y + t * hidden, hidden, T(0));
    }
  }
}

template <class T>
void embedding_backward(int64_t tokens, int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                        const T* dy, T* dtable) {
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = ids[t] - first;
    if (row < 0 || row >= rows) continue;
    ArrayView<T>(dtable + row * hidden, hidden) += ConstArrayView<T>(dy + t * hidden, hidden);
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

#define MPT_INSTANTIATE(T)                                                                            \
  template void embedding_forward(int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*, T*);  \
  template void embedding_backward(int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*, T*); \
  template void position_forward(int64_t, int64_t, const int32_t*, const T*, T*);                     \
  template void position_backward(int64_t, int64_t, const int32_t*, const T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
template void embedding_forward(int64_t, int64_t, int64_t, int64_t, const int32_t*, const uint16_t*,
                                uint16_t*);

}  // namespace mpt::runtime::cpu
