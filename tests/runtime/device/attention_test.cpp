// SPDX-License-Identifier: Apache-2.0

// The gradient of attention against its definition in long double, over sequences of less than one, exactly
// one and several blocks of queries (64 rows), where the kernel adds key and value gradients block by block.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "runtime/device/cpu/cpu_device.h"

namespace mpt::runtime {
namespace {

using Real = long double;

template <class T>
std::vector<T> values(int64_t count, int seed) {
  std::vector<T> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(T(std::sin(double(i * 37 + seed * 101)) * 1.5));
  return out;
}

// dqkv by the definition, and beside each element the sum of the magnitudes that went into it.
struct Reference {
  std::vector<Real> gradient, magnitude;
  Real largest_score = 0;  // largest sum of |q k| / sqrt(d): how far a rounding of q k moves the exponent
};

template <class T>
struct Definition {
  const AttentionShape& s;
  const std::vector<T>&qkv, &dout;
  Reference result{};

  size_t at(int64_t b, int64_t t, int64_t slot) const {
    return size_t((b * s.sequence + t) * s.row() + slot * s.head_dim);
  }
  size_t out_at(int64_t b, int64_t t, int64_t h) const {
    return size_t(((b * s.sequence + t) * s.heads + h) * s.head_dim);
  }
  void add(size_t place, Real value, Real magnitude) {
    result.gradient[place] += value;
    result.magnitude[place] += magnitude;
  }

  // Sum of a b, and of |a b|, over the head size.
  std::pair<Real, Real> dot(const T* a, const T* b) const {
    Real sum = 0, magnitude = 0;
    for (int64_t d = 0; d < s.head_dim; ++d) {
      sum += Real(a[d]) * Real(b[d]);
      magnitude += std::fabs(Real(a[d]) * Real(b[d]));
    }
    return {sum, magnitude};
  }

  void add_query(int64_t b, int64_t h, int64_t i) {
    const int64_t shared = h / (s.heads / s.kv_heads), key = s.heads + shared, value = key + s.kv_heads;
    const Real scale = 1 / std::sqrt(Real(s.head_dim));
    const T *q = &qkv[at(b, i, h)], *d_o = &dout[out_at(b, i, h)];
    std::vector<Real> p(size_t(i + 1));
    Real sum = 0, delta = 0, delta_magnitude = 0;
    for (int64_t j = 0; j <= i; ++j) {
      const auto [score, magnitude] = dot(q, &qkv[at(b, j, key)]);
      result.largest_score = std::max(result.largest_score, magnitude * scale);
      sum += p[size_t(j)] = std::exp(score * scale);
    }
    for (int64_t j = 0; j <= i; ++j) {
      const auto [dp, magnitude] = dot(d_o, &qkv[at(b, j, value)]);
      p[size_t(j)] /= sum;
      delta += p[size_t(j)] * dp;
      delta_magnitude += p[size_t(j)] * magnitude;
    }
    for (int64_t j = 0; j <= i; ++j) {
      const auto [dp, magnitude] = dot(d_o, &qkv[at(b, j, value)]);
      const Real ds = p[size_t(j)] * (dp - delta) * scale,
                 ds_magnitude = p[size_t(j)] * (magnitude + delta_magnitude) * scale;
      for (int64_t d = 0; d < s.head_dim; ++d) {
        const Real k = qkv[at(b, j, key) + size_t(d)];
        add(at(b, i, h) + size_t(d), ds * k, ds_magnitude * std::fabs(k));
        add(at(b, j, key) + size_t(d), ds * q[d], ds_magnitude * std::fabs(Real(q[d])));
        add(at(b, j, value) + size_t(d), p[size_t(j)] * d_o[d], p[size_t(j)] * std::fabs(Real(d_o[d])));
      }
    }
  }

  Reference compute() {
    result.gradient.assign(qkv.size(), 0);
    result.magnitude.assign(qkv.size(), 0);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.sequence; ++i) add_query(b, h, i);
    return result;
  }
};

template <class T>
void check_gradient(DataType type, const AttentionShape& s) {
  const auto device = make_cpu_device();
  const int64_t tokens = s.batch * s.sequence;
  const auto qkv = values<T>(tokens * s.row(), 7), dout = values<T>(tokens * s.heads * s.head_dim, 8);
  std::vector<T> out(dout.size()), log_sum_exp(size_t(tokens * s.heads)), got(qkv.size());
  device->run(type, AttentionForward{
                        .shape = s, .qkv = qkv.data(), .out = out.data(), .log_sum_exp = log_sum_exp.data()});
  device->run(type, AttentionBackward{.shape = s,
                                      .dout = dout.data(),
                                      .qkv = qkv.data(),
                                      .out = out.data(),
                                      .log_sum_exp = log_sum_exp.data(),
                                      .dqkv = got.data()});
  const Reference want = Definition<T>{s, qkv, dout}.compute();
  // Unit roundoffs: a probability has those of its exponent (q k, and the same again in the log-sum-exp) and
  // of the sum over keys; a gradient has two of them (its own and the output's, in delta), three sums over
  // the sequence, two over the head size, and one addition per query head that shares the keys.
  const Real probability = 2 * Real(s.head_dim + 2) * want.largest_score + Real(s.sequence + 8);
  const Real terms = 2 * probability + Real(3 * s.sequence + 2 * s.head_dim + s.heads / s.kv_heads + 8);
  const Real unit = Real(std::numeric_limits<T>::epsilon()) / 2;
  Real worst = 0;
  size_t worst_at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const Real share = std::fabs(Real(got[i]) - want.gradient[i]) / (terms * unit * want.magnitude[i]);
    if (!(share <= worst)) worst = share, worst_at = i;
  }
  EXPECT_LE(worst, 1) << "share of the tolerance, at element " << worst_at << " of sequence " << s.sequence;
}

TEST(Attention, GradientEqualsItsDefinitionOverAnyNumberOfBlocks) {
  for (const int64_t sequence : {1, 3, 48, 49, 130}) {
    for (const auto& [heads, kv_heads] : {std::pair{4, 2}, std::pair{3, 3}, std::pair{2, 1}}) {
      const AttentionShape shape{2, sequence, heads, kv_heads, 6};
      check_gradient<float>(DataType::float32, shape);
      check_gradient<double>(DataType::float64, shape);
    }
  }
}

}  // namespace
}  // namespace mpt::runtime
