// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

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

// Zhang and Sennrich 2019 (arXiv:1910.07467) over each head: y = x / rms(x) * scale.
template <class T>
void head_norm_forward(const AttentionShape& s, double epsilon, const T* query_scale, const T* key_scale,
                       T* qkv, T* kept) {
  const int64_t normed = s.heads + s.kv_heads;
  for (int64_t t = 0; t < s.tokens(); ++t) {
    for (int64_t h = 0; h < normed; ++h) {
      ArrayView<T> x(qkv + t * s.row() + h * s.head_dim, s.head_dim);
      ArrayView<T>(kept + (t * normed + h) * s.head_dim, s.head_dim) = x;
      const T reciprocal = T(1) / std::sqrt(x.square().mean() + T(epsilon));
      x *= reciprocal * ConstArrayView<T>(h < s.heads ? query_scale : key_scale, s.head_dim);
    }
  }
}

template <class T>
void head_norm_backward(const AttentionShape& s, double epsilon, const T* query_scale, const T* key_scale,
                        const T* kept, T* dqkv, T* dquery_scale, T* dkey_scale) {
  const int64_t normed = s.heads + s.kv_heads;
  Eigen::Array<T, Eigen::Dynamic, 1> g(s.head_dim), xhat(s.head_dim);
  for (int64_t t = 0; t < s.tokens(); ++t) {
    for (int64_t h = 0; h < normed; ++h) {
      const bool query = h < s.heads;
      ArrayView<T> d(dqkv + t * s.row() + h * s.head_dim, s.head_dim);
      const ConstArrayView<T> x(kept + (t * normed + h) * s.head_dim, s.head_dim);
      const T reciprocal = T(1) / std::sqrt(x.square().mean() + T(epsilon));
      xhat = x * reciprocal;
      ArrayView<T>(query ? dquery_scale : dkey_scale, s.head_dim) += d * xhat;
      g = d * ConstArrayView<T>(query ? query_scale : key_scale, s.head_dim);
      d = (g - xhat * (g * xhat).mean()) * reciprocal;
    }
  }
}

}  // namespace

void run(const Call& call, const NormForward& o) {
  const NormShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  if (o.residual != nullptr) run(call, ResidualAdd{count, o.x, o.residual, o.sum});
  const void* const x = o.residual != nullptr ? o.sum : o.x;
  call.compute([&](auto& f) {
    norm_forward(s, f.in(x, count), f.in(o.scale, s.columns), f.in(o.bias, s.columns), f.out(o.y, count),
                 f.state(o.statistics));
  });
}

void run(const Call& call, const NormBackwardInput& o) {
  const NormShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  call.compute([&](auto& f) {
    norm_backward_input(s, f.in(o.dy, count), f.in(o.x, count), f.in(o.scale, s.columns),
                        f.state(o.statistics), f.out(o.dx, count));
  });
  if (o.residual != nullptr) run(call, ResidualAdd{count, o.dx, o.residual, o.dx});
}

void run(const Call& call, const NormBackwardWeight& o) {
  const int64_t count = o.shape.rows * o.shape.columns;
  call.compute([&](auto& f) {
    norm_backward_weight(o.shape, f.in(o.dy, count), f.in(o.x, count), f.state(o.statistics),
                         f.state(o.dscale), f.state(o.dbias));
  });
}

void run(const Call& call, const HeadNormForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    head_norm_forward(s, o.epsilon, f.in(o.query_scale, s.head_dim), f.in(o.key_scale, s.head_dim),
                      f.in_out(o.qkv, s.tokens() * s.row()), f.out(o.kept, s.tokens() * s.rotated()));
  });
}

void run(const Call& call, const HeadNormBackward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    head_norm_backward(s, o.epsilon, f.in(o.query_scale, s.head_dim), f.in(o.key_scale, s.head_dim),
                       f.in(o.kept, s.tokens() * s.rotated()), f.in_out(o.dqkv, s.tokens() * s.row()),
                       f.state(o.dquery_scale), f.state(o.dkey_scale));
  });
}

}  // namespace mpt::runtime::cpu
