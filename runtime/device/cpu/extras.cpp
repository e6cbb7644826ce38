// SPDX-License-Identifier: Apache-2.0

// What some models add to the usual operators: sinks, soft caps, factors, weighted biases.

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {

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

#define MPT_INSTANTIATE(T)                                                                        \
  template void scale(int64_t, double, const T*, T*);                                             \
  template void soft_cap(int64_t, double, T*);                                                    \
  template void sink_forward(const AttentionShape&, const T*, T*, T*);                            \
  template void sink_backward(const AttentionShape&, const T*, const T*, const T*, const T*, T*); \
  template void weighted_bias_forward(int64_t, int64_t, const T*, const T*, T*);                  \
  template void weighted_bias_backward(int64_t, int64_t, const T*, const T*, const T*, T*, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
