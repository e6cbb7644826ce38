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

}  // namespace

void run(const Call& call, const NormForward& o) {
  const NormShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  const bool centred = s.kind == NormKind::layer_norm;
  if (o.residual != nullptr) run(call, ResidualAdd{.count = count, .a = o.x, .b = o.residual, .y = o.sum});
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const x = f.in(o.residual != nullptr ? o.sum : o.x, count), *const bias =
                                                                             f.in(o.bias, s.columns);
    const auto gain = view(f.in(o.scale, s.columns), s.columns);
    T *const y = f.out(o.y, count), *const statistics = f.state(o.statistics);
    for (int64_t r = 0; r < s.rows; ++r) {
      const auto row = view(x + r * s.columns, s.columns);
      auto out = view(y + r * s.columns, s.columns);
      const T mean = centred ? row.mean() : T(0);
      const T variance = (row - mean).square().mean();
      const T reciprocal = T(1) / std::sqrt(variance + T(s.epsilon));
      out = (row - mean) * reciprocal * gain;
      if (bias != nullptr) out += view(bias, s.columns);
      if (centred) statistics[r] = mean;
      statistics[centred ? s.rows + r : r] = reciprocal;
    }
  });
}

// dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * scale; rms norm has no mean(g).
void run(const Call& call, const NormBackwardInput& o) {
  const NormShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const dy = f.in(o.dy, count), *const x = f.in(o.x, count);
    const auto gain = view(f.in(o.scale, s.columns), s.columns);
    const RowStatistics<T> stats{s, f.state(o.statistics)};
    T* const dx = f.out(o.dx, count);
    Eigen::Array<T, Eigen::Dynamic, 1> g(s.columns), xhat(s.columns);
    for (int64_t r = 0; r < s.rows; ++r) {
      const T reciprocal = stats.reciprocal(r);
      g = view(dy + r * s.columns, s.columns) * gain;
      xhat = (view(x + r * s.columns, s.columns) - stats.mean(r)) * reciprocal;
      const T mean_g = s.kind == NormKind::layer_norm ? g.mean() : T(0);
      const T mean_gx = (g * xhat).mean();
      view(dx + r * s.columns, s.columns) = (g - mean_g - xhat * mean_gx) * reciprocal;
    }
  });
  if (o.residual != nullptr) run(call, ResidualAdd{.count = count, .a = o.dx, .b = o.residual, .y = o.dx});
}

void run(const Call& call, const NormBackwardWeight& o) {
  const NormShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const dy = f.in(o.dy, count), *const x = f.in(o.x, count);
    const RowStatistics<T> stats{s, f.state(o.statistics)};
    T* const dbias = f.state(o.dbias);
    auto scale_sum = view(f.state(o.dscale), s.columns);
    for (int64_t r = 0; r < s.rows; ++r) {
      const auto g = view(dy + r * s.columns, s.columns);
      scale_sum += g * (view(x + r * s.columns, s.columns) - stats.mean(r)) * stats.reciprocal(r);
      if (dbias != nullptr) view(dbias, s.columns) += g;
    }
  });
}

// Zhang and Sennrich 2019 (arXiv:1910.07467) over each head: y = x / rms(x) * scale.
void run(const Call& call, const HeadNormForward& o) {
  const AttentionShape& s = o.shape;
  const int64_t normed = s.heads + s.kv_heads;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const query_scale = f.in(o.query_scale, s.head_dim), *const key_scale =
                                                                      f.in(o.key_scale, s.head_dim);
    T *const qkv = f.in_out(o.qkv, s.tokens() * s.row()), *const kept =
                                                              f.out(o.kept, s.tokens() * s.rotated());
    for (int64_t i = 0; i < s.tokens() * normed; ++i) {
      const int64_t h = i % normed;
      auto x = view(qkv + i / normed * s.row() + h * s.head_dim, s.head_dim);
      view(kept + i * s.head_dim, s.head_dim) = x;
      const T reciprocal = T(1) / std::sqrt(x.square().mean() + T(o.epsilon));
      x *= reciprocal * view(h < s.heads ? query_scale : key_scale, s.head_dim);
    }
  });
}

void run(const Call& call, const HeadNormBackward& o) {
  const AttentionShape& s = o.shape;
  const int64_t normed = s.heads + s.kv_heads;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const query_scale = f.in(o.query_scale, s.head_dim), *const key_scale =
                                                                      f.in(o.key_scale, s.head_dim);
    const T* const kept = f.in(o.kept, s.tokens() * s.rotated());
    T *const dqkv = f.in_out(o.dqkv, s.tokens() * s.row()), *const dquery_scale = f.state(o.dquery_scale),
             *const dkey_scale = f.state(o.dkey_scale);
    Eigen::Array<T, Eigen::Dynamic, 1> g(s.head_dim), xhat(s.head_dim);
    for (int64_t i = 0; i < s.tokens() * normed; ++i) {
      const int64_t h = i % normed;
      const bool query = h < s.heads;
      auto d = view(dqkv + i / normed * s.row() + h * s.head_dim, s.head_dim);
      const auto x = view(kept + i * s.head_dim, s.head_dim);
      const T reciprocal = T(1) / std::sqrt(x.square().mean() + T(o.epsilon));
      xhat = x * reciprocal;
      view(query ? dquery_scale : dkey_scale, s.head_dim) += d * xhat;
      g = d * view(query ? query_scale : key_scale, s.head_dim);
      d = (g - xhat * (g * xhat).mean()) * reciprocal;
    }
  });
}

}  // namespace mpt::runtime::cpu
