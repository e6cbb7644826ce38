// SPDX-License-Identifier: Apache-2.0

// What some models add to the usual operators: sinks, soft caps, factors, weighted biases.

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
void scale(int64_t count, double factor, const T* x, T* y) {
  ArrayView<T>(y, count) = ConstArrayView<T>(x, count) * T(factor);
}

template <class T>
void soft_cap(int64_t count, double cap, T* x) {
  ArrayView<T> all(x, count);
  all = T(cap) * (all * T(1.0 / cap)).tanh();
}

// The sum of exponentials grows by the sink's, and what values gave shrinks alike.
template <class T>
void sink_forward(const AttentionShape& s, const T* sinks, T* out, T* log_sum_exp) {
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      T* const lse = log_sum_exp + (b * s.heads + h) * s.sequence;
      for (int64_t i = 0; i < s.sequence; ++i) {
        const T high = std::max(lse[i], sinks[h]);
        const T sum = high + std::log(std::exp(lse[i] - high) + std::exp(sinks[h] - high));
        ArrayView<T>(out + ((b * s.sequence + i) * s.heads + h) * s.values(), s.values()) *=
            std::exp(lse[i] - sum);
        lse[i] = sum;
      }
    }
  }
}

// The sink's probability p sees no value: its gradient is -p times the gradient of the output by the output.
template <class T>
void sink_backward(const AttentionShape& s, const T* sinks, const T* dout, const T* out, const T* log_sum_exp,
                   T* dsinks) {
  for (int64_t h = 0; h < s.heads; ++h) {
    double sum = 0.0;
    for (int64_t b = 0; b < s.batch; ++b) {
      for (int64_t i = 0; i < s.sequence; ++i) {
        const int64_t row = ((b * s.sequence + i) * s.heads + h) * s.values();
        const T p = std::exp(sinks[h] - log_sum_exp[(b * s.heads + h) * s.sequence + i]);
        sum -= double(
            p * (ConstArrayView<T>(dout + row, s.values()) * ConstArrayView<T>(out + row, s.values())).sum());
      }
    }
    dsinks[h] = T(sum);
  }
}

template <class T>
void weighted_bias_forward(int64_t rows, int64_t columns, const T* factors, const T* bias, T* y) {
  for (int64_t r = 0; r < rows; ++r)
    ArrayView<T>(y + r * columns, columns) += factors[r] * ConstArrayView<T>(bias, columns);
}

template <class T>
void weighted_bias_backward(int64_t rows, int64_t columns, const T* factors, const T* bias, const T* dy,
                            T* dbias, T* dfactors) {
  for (int64_t r = 0; r < rows; ++r) {
    const ConstArrayView<T> d(dy + r * columns, columns);
    if (dbias != nullptr) ArrayView<T>(dbias, columns) += factors[r] * d;
    if (dfactors != nullptr) dfactors[r] += (d * ConstArrayView<T>(bias, columns)).sum();
  }
}

}  // namespace

void run(const Call& call, const Scale& o) {
  call.compute([&](auto& f) { scale(o.count, o.factor, f.in(o.x, o.count), f.out(o.y, o.count)); });
}

void run(const Call& call, const SoftCap& o) {
  call.compute([&](auto& f) { soft_cap(o.count, o.cap, f.in_out(o.x, o.count)); });
}

void run(const Call& call, const SinkForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    sink_forward(s, f.in(o.sinks, s.heads), f.in_out(o.out, s.tokens() * s.outputs()),
                 f.state(o.log_sum_exp));
  });
}

void run(const Call& call, const SinkBackward& o) {
  const AttentionShape& s = o.shape;
  const int64_t count = s.tokens() * s.outputs();
  call.compute([&](auto& f) {
    sink_backward(s, f.in(o.sinks, s.heads), f.in(o.dout, count), f.in(o.out, count), f.state(o.log_sum_exp),
                  f.state(o.dsinks));
  });
}

void run(const Call& call, const WeightedBiasForward& o) {
  call.compute([&](auto& f) {
    weighted_bias_forward(o.rows, o.columns, f.state(o.factors), f.in(o.bias, o.columns),
                          f.in_out(o.y, o.rows * o.columns));
  });
}

void run(const Call& call, const WeightedBiasBackward& o) {
  call.compute([&](auto& f) {
    weighted_bias_backward(o.rows, o.columns, f.state(o.factors), f.in(o.bias, o.columns),
                           f.in(o.dy, o.rows * o.columns), f.state(o.dbias), f.state(o.dfactors));
  });
}

}  // namespace mpt::runtime::cpu
