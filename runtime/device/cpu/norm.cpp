// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {
namespace {

// statistics: mean [rows], then reciprocal deviation [rows]; rms norm has the latter alone.
template <class T>
struct RowStatistics {
  const NormShape& shape;
  const T* statistics;
  T mean(int64_t r) const { return shape.kind == NormKind::layer_norm ? statistics[r] : T(0); }
  T reciprocal(int64_t r) const {
    return statistics[shape.kind == NormKind::layer_norm ? shape.rows + r : r];
  }
};

}  // namespace

template <class T>
void norm_forward(const NormShape& s, const T* x, const T* scale, const T* bias, T* y, T* statistics) {
  const bool centred = s.kind == NormKind::layer_norm;
  const ConstArrayView<T> gain(scale, s.columns);
  for (int64_t r = 0; r < s.rows; ++r) {
    const ConstArrayView<T> row(x + r * s.columns, s.columns);
    ArrayView<T> out(y + r * s.columns, s.columns);
    const T mean = centred ? row.mean() : T(0);
    const T variance = (row - mean).square().mean();
    const T reciprocal = T(1) / std::sqrt(variance + T(s.epsilon));
    out = (row - mean) * reciprocal * gain;
    if (bias != nullptr) out += ConstArrayView<T>(bias, s.columns);
    if (centred) statistics[r] = mean;
    statistics[centred ? s.rows + r : r] = reciprocal;
  }
}

// dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * scale; rms norm has no mean(g).
template <class T>
void norm_backward_input(const NormShape& s, const T* dy, const T* x, const T* scale, const T* statistics,
                         T* dx) {
  const RowStatistics<T> stats{s, statistics};
  const ConstArrayView<T> gain(scale, s.columns);
  Eigen::Array<T, Eigen::Dynamic, 1> g(s.columns), xhat(s.columns);
  for (int64_t r = 0; r < s.rows; ++r) {
    const T reciprocal = stats.reciprocal(r);
    g = ConstArrayView<T>(dy + r * s.columns, s.columns) * gain;
    xhat = (ConstArrayView<T>(x + r * s.columns, s.columns) - stats.mean(r)) * reciprocal;
    const T mean_g = s.kind == NormKind::layer_norm ? g.mean() : T(0);
    const T mean_gx = (g * xhat).mean();
    ArrayView<T>(dx + r * s.columns, s.columns) = (g - mean_g - xhat * mean_gx) * reciprocal;
  }
}

template <class T>
void norm_backward_weight(const NormShape& s, const T* dy, const T* x, const T* statistics, T* dscale,
                          T* dbias) {
  const RowStatistics<T> stats{s, statistics};
  ArrayView<T> scale_sum(dscale, s.columns);
  for (int64_t r = 0; r < s.rows; ++r) {
    const ConstArrayView<T> g(dy + r * s.columns, s.columns);
    scale_sum += g * (ConstArrayView<T>(x + r * s.columns, s.columns) - stats.mean(r)) * stats.reciprocal(r);
    if (dbias != nullptr) ArrayView<T>(dbias, s.columns) += g;
  }
}

#define MPT_INSTANTIATE(T)                                                                         \
  template void norm_forward(const NormShape&, const T*, const T*, const T*, T*, T*);              \
  template void norm_backward_input(const NormShape&, const T*, const T*, const T*, const T*, T*); \
  template void norm_backward_weight(const NormShape&, const T*, const T*, const T*, T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
