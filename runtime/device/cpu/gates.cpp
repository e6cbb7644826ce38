// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/mixer_kernels.h"

namespace mpt::runtime::cpu {

template <class T>
void gated_norm_forward(const GatedNormShape& s, const T* x, const T* gate, const T* scale, T* y) {
  const ConstArrayView<T> w(scale, s.head_dim);
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t column = h * s.head_dim, at = t * s.columns() + column;
      const ConstArrayView<T> in(x + at, s.head_dim), z(gate + t * s.row + column, s.head_dim);
      const T r = T(1) / std::sqrt(in.square().mean() + T(s.epsilon));
      ArrayView<T>(y + at, s.head_dim) = in * r * w * z / (T(1) + (-z).exp());
    }
  }
}

template <class T>
void gated_norm_backward(const GatedNormShape& s, const T* dy, const T* x, const T* gate, const T* scale,
                         T* dx, T* dgate, T* dscale) {
  const ConstArrayView<T> w(scale, s.head_dim);
  ArrayView<T> dw(dscale, s.head_dim);
  Eigen::Array<T, Eigen::Dynamic, 1> sigmoid, normed, d;
  for (int64_t t = 0; t < s.tokens; ++t) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t column = h * s.head_dim, at = t * s.columns() + column;
      const ConstArrayView<T> out(dy + at, s.head_dim), in(x + at, s.head_dim),
          z(gate + t * s.row + column, s.head_dim);
      const T r = T(1) / std::sqrt(in.square().mean() + T(s.epsilon));
      sigmoid = T(1) / (T(1) + (-z).exp());
      normed = in * r;
      ArrayView<T>(dgate + t * s.row + column, s.head_dim) =
          out * normed * w * sigmoid * (T(1) + z * (T(1) - sigmoid));
      d = out * z * sigmoid;
      dw += d * normed;
      d *= w;
      ArrayView<T>(dx + at, s.head_dim) = r * (d - normed * (d * normed).mean());
    }
  }
}

template <class T>
void gate_forward(const GateShape& s, const T* x, const T* gate, T* y) {
  if (s.width() == 1) {
    const ConstArrayView<T> z(gate, s.rows * s.columns);
    ArrayView<T>(y, z.size()) = ConstArrayView<T>(x, z.size()) / (T(1) + (-z).exp());
    return;
  }
  for (int64_t i = 0; i < s.rows * s.gates; ++i) {
    ArrayView<T>(y + i * s.width(), s.width()) =
        ConstArrayView<T>(x + i * s.width(), s.width()) / (T(1) + std::exp(-gate[i]));
  }
}

template <class T>
void gate_backward(const GateShape& s, const T* dy, const T* x, const T* gate, T* dx, T* dgate) {
  if (s.width() == 1) {  // row by row: dgate may be the memory of gate
    Eigen::Array<T, Eigen::Dynamic, 1> sigmoid;
    for (int64_t row = 0; row < s.rows; ++row) {
      const int64_t at = row * s.columns;
      const ConstArrayView<T> d(dy + at, s.columns), z(gate + at, s.columns);
      sigmoid = T(1) / (T(1) + (-z).exp());
      ArrayView<T>(dgate + at, s.columns) =
          d * ConstArrayView<T>(x + at, s.columns) * sigmoid * (T(1) - sigmoid);
      ArrayView<T>(dx + at, s.columns) = d * sigmoid;
    }
    return;
  }
  for (int64_t i = 0; i < s.rows * s.gates; ++i) {
    const int64_t at = i * s.width();
    const ConstArrayView<T> d(dy + at, s.width());
    const T sigmoid = T(1) / (T(1) + std::exp(-gate[i]));
    dgate[i] = (d * ConstArrayView<T>(x + at, s.width())).sum() * sigmoid * (T(1) - sigmoid);
    ArrayView<T>(dx + at, s.width()) = d * sigmoid;
  }
}

#define MPT_INSTANTIATE(T)                                                                                 \
  template void gated_norm_forward(const GatedNormShape&, const T*, const T*, const T*, T*);               \
  template void gated_norm_backward(const GatedNormShape&, const T*, const T*, const T*, const T*, T*, T*, \
                                    T*);                                                                   \
  template void gate_forward(const GateShape&, const T*, const T*, T*);                                    \
  template void gate_backward(const GateShape&, const T*, const T*, const T*, T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
