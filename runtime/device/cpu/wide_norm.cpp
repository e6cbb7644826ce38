// SPDX-License-Identifier: Apache-2.0

// Root mean squares over the queries of all heads, and over the keys (OLMo 2). With r = 1 / rms, g = dy
// scale: dx = r (g - x r^2 mean(g x)).

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Queries or keys of a token: their columns, and how many there are on all ranks.
struct Part {
  int64_t column, width, whole;
};
std::pair<Part, Part> parts_of(const AttentionShape& s, int64_t ranks) {
  const int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  return {{0, queries, queries * ranks}, {queries, keys, keys * ranks}};
}

template <class T, class F>
void for_each_part(const AttentionShape& s, int64_t ranks, const T* query_scale, const T* key_scale,
                   F&& body) {
  const auto [queries, keys] = parts_of(s, ranks);
  for (int64_t t = 0; t < s.tokens(); ++t) {
    body(t, 0, queries, query_scale);
    body(t, 1, keys, key_scale);
  }
}

template <class T>
void wide_norm_squares(const AttentionShape& s, const T* qkv, T* sums) {
  for_each_part<T>(s, 1, nullptr, nullptr, [&](int64_t t, int64_t which, const Part& part, const T*) {
    sums[2 * t + which] = ConstArrayView<T>(qkv + t * s.row() + part.column, part.width).square().sum();
  });
}

template <class T>
void wide_norm_forward(const AttentionShape& s, int64_t ranks, double epsilon, const T* sums,
                       const T* query_scale, const T* key_scale, T* qkv, T* kept) {
  for_each_part(s, ranks, query_scale, key_scale,
                [&](int64_t t, int64_t which, const Part& part, const T* scale) {
                  ArrayView<T> x(qkv + t * s.row() + part.column, part.width);
                  ArrayView<T>(kept + t * s.rotated() + part.column, part.width) = x;
                  const T mean = sums[2 * t + which] / T(part.whole);
                  x *= T(1) / std::sqrt(mean + T(epsilon)) * ConstArrayView<T>(scale, part.width);
                });
}

template <class T>
void wide_norm_dots(const AttentionShape& s, const T* query_scale, const T* key_scale, const T* kept,
                    const T* dqkv, T* dots) {
  for_each_part(s, 1, query_scale, key_scale,
                [&](int64_t t, int64_t which, const Part& part, const T* scale) {
                  const ConstArrayView<T> d(dqkv + t * s.row() + part.column, part.width);
                  const ConstArrayView<T> x(kept + t * s.rotated() + part.column, part.width);
                  dots[2 * t + which] = (d * x * ConstArrayView<T>(scale, part.width)).sum();
                });
}

template <class T>
void wide_norm_backward(const AttentionShape& s, int64_t ranks, double epsilon, const T* sums, const T* dots,
                        const T* query_scale, const T* key_scale, const T* kept, T* dqkv, T* dquery_scale,
                        T* dkey_scale) {
  for_each_part(
      s, ranks, query_scale, key_scale, [&](int64_t t, int64_t which, const Part& part, const T* scale) {
        ArrayView<T> d(dqkv + t * s.row() + part.column, part.width);
        const ConstArrayView<T> x(kept + t * s.rotated() + part.column, part.width);
        const T whole = T(part.whole);
        const T r = T(1) / std::sqrt(sums[2 * t + which] / whole + T(epsilon));
        ArrayView<T>(which == 0 ? dquery_scale : dkey_scale, part.width) += d * x * r;
        d = r * (d * ConstArrayView<T>(scale, part.width) - x * (r * r * dots[2 * t + which] / whole));
      });
}

}  // namespace

void run(const Call& call, const WideNormSquares& o) {
  call.compute([&](auto& f) {
    wide_norm_squares(o.shape, f.in(o.qkv, o.shape.tokens() * o.shape.row()), f.state(o.sums));
  });
}

void run(const Call& call, const WideNormForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    wide_norm_forward(s, o.ranks, o.epsilon, f.state(o.sums), f.in(o.query_scale, s.heads * s.head_dim),
                      f.in(o.key_scale, s.kv_heads * s.head_dim), f.in_out(o.qkv, s.tokens() * s.row()),
                      f.out(o.kept, s.tokens() * s.rotated()));
  });
}

void run(const Call& call, const WideNormDots& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    wide_norm_dots(s, f.in(o.query_scale, s.heads * s.head_dim), f.in(o.key_scale, s.kv_heads * s.head_dim),
                   f.in(o.kept, s.tokens() * s.rotated()), f.in(o.dqkv, s.tokens() * s.row()),
                   f.state(o.dots));
  });
}

void run(const Call& call, const WideNormBackward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    wide_norm_backward(s, o.ranks, o.epsilon, f.state(o.sums), f.state(o.dots),
                       f.in(o.query_scale, s.heads * s.head_dim), f.in(o.key_scale, s.kv_heads * s.head_dim),
                       f.in(o.kept, s.tokens() * s.rotated()), f.in_out(o.dqkv, s.tokens() * s.row()),
                       f.state(o.dquery_scale), f.state(o.dkey_scale));
  });
}

}  // namespace mpt::runtime::cpu
