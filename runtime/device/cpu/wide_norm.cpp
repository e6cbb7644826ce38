// SPDX-License-Identifier: Apache-2.0

// Root mean squares over the queries of all heads, and over the keys (OLMo 2). With r = 1 / rms, g = dy
// scale: dx = r (g - x r^2 mean(g x)).

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Queries (0) or keys (1) of a token: their columns, and how many there are on all ranks.
struct Part {
  int64_t which, column, width, whole;
};

template <class F>
void for_each_part(const AttentionShape& s, int64_t ranks, F&& body) {
  const int64_t queries = s.heads * s.head_dim, keys = s.kv_heads * s.head_dim;
  for (int64_t t = 0; t < s.tokens(); ++t) {
    body(t, Part{0, 0, queries, queries * ranks});
    body(t, Part{1, queries, keys, keys * ranks});
  }
}

// Of queries and keys.
template <class T>
struct Scales {
  template <class Operator, class F>
  Scales(const Operator& o, F& f)
      : of{f.in(o.query_scale, o.shape.heads * o.shape.head_dim),
           f.in(o.key_scale, o.shape.kv_heads * o.shape.head_dim)} {}
  auto operator()(const Part& part) const { return view(of[part.which], part.width); }
  const T* of[2];
};

}  // namespace

void run(const Call& call, const WideNormSquares& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f, const auto*) {
    const auto* const qkv = f.in(o.qkv, s.tokens() * s.row());
    auto* const sums = f.state(o.sums);
    for_each_part(s, 1, [&](int64_t t, const Part& part) {
      sums[2 * t + part.which] = view(qkv + t * s.row() + part.column, part.width).square().sum();
    });
  });
}

void run(const Call& call, const WideNormForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const Scales<T> scale(o, f);
    const T* const sums = f.state(o.sums);
    T *const qkv = f.in_out(o.qkv, s.tokens() * s.row()), *const kept =
                                                              f.out(o.kept, s.tokens() * s.rotated());
    for_each_part(s, o.ranks, [&](int64_t t, const Part& part) {
      auto x = view(qkv + t * s.row() + part.column, part.width);
      view(kept + t * s.rotated() + part.column, part.width) = x;
      const T mean = sums[2 * t + part.which] / T(part.whole);
      x *= T(1) / std::sqrt(mean + T(o.epsilon)) * scale(part);
    });
  });
}

void run(const Call& call, const WideNormDots& o) {
  const AttentionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const Scales<T> scale(o, f);
    const T *const kept = f.in(o.kept, s.tokens() * s.rotated()), *const dqkv =
                                                                      f.in(o.dqkv, s.tokens() * s.row());
    T* const dots = f.state(o.dots);
    for_each_part(s, 1, [&](int64_t t, const Part& part) {
      const auto d = view(dqkv + t * s.row() + part.column, part.width);
      const auto x = view(kept + t * s.rotated() + part.column, part.width);
      dots[2 * t + part.which] = (d * x * scale(part)).sum();
    });
  });
}

void run(const Call& call, const WideNormBackward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const Scales<T> scale(o, f);
    const T *const sums = f.state(o.sums), *const dots = f.state(o.dots);
    const T* const kept = f.in(o.kept, s.tokens() * s.rotated());
    T *const dqkv = f.in_out(o.dqkv, s.tokens() * s.row()), *const dquery_scale = f.state(o.dquery_scale),
             *const dkey_scale = f.state(o.dkey_scale);
    for_each_part(s, o.ranks, [&](int64_t t, const Part& part) {
      auto d = view(dqkv + t * s.row() + part.column, part.width);
      const auto x = view(kept + t * s.rotated() + part.column, part.width);
      const T whole = T(part.whole);
      const T r = T(1) / std::sqrt(sums[2 * t + part.which] / whole + T(o.epsilon));
      view(part.which == 0 ? dquery_scale : dkey_scale, part.width) += d * x * r;
      d = r * (d * scale(part) - x * (r * r * dots[2 * t + part.which] / whole));
    });
  });
}

}  // namespace mpt::runtime::cpu
