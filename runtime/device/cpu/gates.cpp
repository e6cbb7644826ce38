// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

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

}  // namespace

void run(const Call& call, const GatedNormForward& o) {
  const GatedNormShape& s = o.shape;
  const int64_t count = s.tokens * s.columns();
  call.compute([&](auto& f) {
    gated_norm_forward(s, f.in(o.x, count), f.in(o.gate, s.read_gate()), f.in(o.scale, s.head_dim),
                       f.out(o.y, count));
  });
}

void run(const Call& call, const GatedNormBackward& o) {
  const GatedNormShape& s = o.shape;
  const int64_t count = s.tokens * s.columns();
  call.compute([&](auto& f) {
    gated_norm_backward(s, f.in(o.dy, count), f.in(o.x, count), f.in(o.gate, s.read_gate()),
                        f.in(o.scale, s.head_dim), f.out(o.dx, count), f.in_out(o.dgate, s.read_gate()),
                        f.state(o.dscale));
  });
}

void run(const Call& call, const GateForward& o) {
  const int64_t count = o.shape.rows * o.shape.columns, gates = o.shape.rows * o.shape.gates;
  call.compute(
      [&](auto& f) { gate_forward(o.shape, f.in(o.x, count), f.in(o.gate, gates), f.out(o.y, count)); });
}

void run(const Call& call, const GateBackward& o) {
  const int64_t count = o.shape.rows * o.shape.columns, gates = o.shape.rows * o.shape.gates;
  call.compute([&](auto& f) {
    gate_backward(o.shape, f.in(o.dy, count), f.in(o.x, count), f.in(o.gate, gates), f.out(o.dx, count),
                  f.out(o.dgate, gates));
  });
}

}  // namespace mpt::runtime::cpu
