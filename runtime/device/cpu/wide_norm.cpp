// SPDX-License-Identifier: Apache-2.0

// Root mean squares over the queries of all heads, and over the keys (OLMo 2). With r = 1 / rms, g = dy
// scale: dx = r (g - x r^2 mean(g x)).

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

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

}  // namespace

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

#define MPT_INSTANTIATE(T)                                                                                  \
  template void wide_norm_squares(const AttentionShape&, const T*, T*);                                     \
  template void wide_norm_forward(const AttentionShape&, int64_t, double, const T*, const T*, const T*, T*, \
                                  T*);                                                                      \
  template void wide_norm_dots(const AttentionShape&, const T*, const T*, const T*, const T*, T*);          \
  template void wide_norm_backward(const AttentionShape&, int64_t, double, const T*, const T*, const T*,    \
                                   const T*, const T*, T*, T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
