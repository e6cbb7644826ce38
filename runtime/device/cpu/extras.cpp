// SPDX-License-Identifier: Apache-2.0

// What some models add to the usual operators: sinks, soft caps, factors, weighted biases.

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

void run(const Call& call, const Scale& o) {
  call.compute([&]<class T>(auto& f, const T*) {
    view(f.out(o.y, o.count), o.count) = view(f.in(o.x, o.count), o.count) * T(o.factor);
  });
}

void run(const Call& call, const SoftCap& o) {
  call.compute([&]<class T>(auto& f, const T*) {
    auto all = view(f.in_out(o.x, o.count), o.count);
    all = T(o.cap) * (all * T(1.0 / o.cap)).tanh();
  });
}

// The sum of exponentials grows by the sink's, and what values gave shrinks alike.
void run(const Call& call, const SinkForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T* const sinks = f.in(o.sinks, s.heads);
    T *const out = f.in_out(o.out, s.tokens() * s.outputs()), *const log_sum_exp = f.state(o.log_sum_exp);
    for (int64_t i = 0; i < s.tokens() * s.heads; ++i) {
      const int64_t token = i / s.heads, h = i % s.heads;
      T& lse = log_sum_exp[(token / s.sequence * s.heads + h) * s.sequence + token % s.sequence];
      const T high = std::max(lse, sinks[h]);
      const T sum = high + std::log(std::exp(lse - high) + std::exp(sinks[h] - high));
      view(out + i * s.values(), s.values()) *= std::exp(lse - sum);
      lse = sum;
    }
  });
}

// The sink's probability p sees no value: its gradient is -p times the gradient of the output by the output.
void run(const Call& call, const SinkBackward& o) {
  const AttentionShape& s = o.shape;
  const int64_t count = s.tokens() * s.outputs();
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const sinks = f.in(o.sinks, s.heads), *const log_sum_exp = f.state(o.log_sum_exp);
    const T *const dout = f.in(o.dout, count), *const out = f.in(o.out, count);
    T* const dsinks = f.state(o.dsinks);
    for (int64_t h = 0; h < s.heads; ++h) {
      double sum = 0.0;
      for (int64_t token = 0; token < s.tokens(); ++token) {
        const int64_t row = (token * s.heads + h) * s.values();
        const T lse = log_sum_exp[(token / s.sequence * s.heads + h) * s.sequence + token % s.sequence];
        sum -= double(std::exp(sinks[h] - lse) *
                      (view(dout + row, s.values()) * view(out + row, s.values())).sum());
      }
      dsinks[h] = T(sum);
    }
  });
}

void run(const Call& call, const WeightedBiasBackward& o) {
  call.compute([&](auto& f, const auto*) {
    const auto *const factors = f.state(o.factors), *const dy = f.in(o.dy, o.rows * o.columns);
    const auto bias = view(f.in(o.bias, o.columns), o.columns);
    auto *const dbias = f.state(o.dbias), *const dfactors = f.state(o.dfactors);
    for (int64_t r = 0; r < o.rows; ++r) {
      const auto d = view(dy + r * o.columns, o.columns);
      if (dbias != nullptr) view(dbias, o.columns) += factors[r] * d;
      if (dfactors != nullptr) dfactors[r] += (d * bias).sum();
    }
  });
}

}  // namespace mpt::runtime::cpu
