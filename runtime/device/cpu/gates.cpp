// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

void run(const Call& call, const GatedNormForward& o) {
  const GatedNormShape& s = o.shape;
  const int64_t count = s.tokens * s.columns();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const x = f.in(o.x, count), *const gate = f.in(o.gate, s.read_gate());
    const auto w = view(f.in(o.scale, s.head_dim), s.head_dim);
    T* const y = f.out(o.y, count);
    for (int64_t i = 0; i < s.tokens * s.heads; ++i) {
      const int64_t at = i * s.head_dim, at_gate = i / s.heads * s.row + i % s.heads * s.head_dim;
      const auto in = view(x + at, s.head_dim), z = view(gate + at_gate, s.head_dim);
      const T r = T(1) / std::sqrt(in.square().mean() + T(s.epsilon));
      view(y + at, s.head_dim) = in * r * w * z / (T(1) + (-z).exp());
    }
  });
}

void run(const Call& call, const GatedNormBackward& o) {
  const GatedNormShape& s = o.shape;
  const int64_t count = s.tokens * s.columns();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const dy = f.in(o.dy, count), *const x = f.in(o.x, count),
                   *const gate = f.in(o.gate, s.read_gate());
    const auto w = view(f.in(o.scale, s.head_dim), s.head_dim);
    T *const dx = f.out(o.dx, count), *const dgate = f.in_out(o.dgate, s.read_gate());
    auto dw = view(f.state(o.dscale), s.head_dim);
    Eigen::Array<T, Eigen::Dynamic, 1> sigmoid, normed, d;
    for (int64_t i = 0; i < s.tokens * s.heads; ++i) {
      const int64_t at = i * s.head_dim, at_gate = i / s.heads * s.row + i % s.heads * s.head_dim;
      const auto out = view(dy + at, s.head_dim), in = view(x + at, s.head_dim),
                 z = view(gate + at_gate, s.head_dim);
      const T r = T(1) / std::sqrt(in.square().mean() + T(s.epsilon));
      sigmoid = T(1) / (T(1) + (-z).exp());
      normed = in * r;
      view(dgate + at_gate, s.head_dim) = out * normed * w * sigmoid * (T(1) + z * (T(1) - sigmoid));
      d = out * z * sigmoid;
      dw += d * normed;
      d *= w;
      view(dx + at, s.head_dim) = r * (d - normed * (d * normed).mean());
    }
  });
}

void run(const Call& call, const GateForward& o) {
  const GateShape& s = o.shape;
  const int64_t count = s.rows * s.columns, gates = s.rows * s.gates, width = s.width();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const x = f.in(o.x, count), *const gate = f.in(o.gate, gates);
    T* const y = f.out(o.y, count);
    if (width == 1) {
      view(y, count) = view(x, count) / (T(1) + (-view(gate, count)).exp());
      return;
    }
    for (int64_t i = 0; i < gates; ++i)
      view(y + i * width, width) = view(x + i * width, width) / (T(1) + std::exp(-gate[i]));
  });
}

void run(const Call& call, const GateBackward& o) {
  const GateShape& s = o.shape;
  const int64_t count = s.rows * s.columns, gates = s.rows * s.gates, width = s.width();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const dy = f.in(o.dy, count), *const x = f.in(o.x, count), *const gate = f.in(o.gate, gates);
    T *const dx = f.out(o.dx, count), *const dgate = f.out(o.dgate, gates);
    if (width == 1) {  // row by row: dgate may be the memory of gate
      Eigen::Array<T, Eigen::Dynamic, 1> sigmoid;
      for (int64_t at = 0; at < count; at += s.columns) {
        const auto d = view(dy + at, s.columns);
        sigmoid = T(1) / (T(1) + (-view(gate + at, s.columns)).exp());
        view(dgate + at, s.columns) = d * view(x + at, s.columns) * sigmoid * (T(1) - sigmoid);
        view(dx + at, s.columns) = d * sigmoid;
      }
      return;
    }
    for (int64_t i = 0; i < gates; ++i) {
      const int64_t at = i * width;
      const auto d = view(dy + at, width);
      const T sigmoid = T(1) / (T(1) + std::exp(-gate[i]));
      dgate[i] = (d * view(x + at, width)).sum() * sigmoid * (T(1) - sigmoid);
      view(dx + at, width) = d * sigmoid;
    }
  });
}

}  // namespace mpt::runtime::cpu
