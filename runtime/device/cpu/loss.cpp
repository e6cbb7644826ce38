// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {

template <class T>
void loss_maximum(int64_t tokens, int64_t columns, int64_t used, const T* logits, T* maximum) {
  for (int64_t t = 0; t < tokens; ++t) {
    maximum[t] = used > 0 ? ConstArrayView<T>(logits + t * columns, used).maxCoeff()
                          : std::numeric_limits<T>::lowest();
  }
}

template <class T>
void loss_exponentials(int64_t tokens, int64_t columns, int64_t used, int64_t first, const int32_t* targets,
                       const T* maximum, T* logits, T* sums) {
  for (int64_t t = 0; t < tokens; ++t) {
    ArrayView<T> row(logits + t * columns, used);
    const int64_t target = targets[t] - first;
    const bool here = target >= 0 && target < used;
    sums[tokens + t] = here ? row[target] - maximum[t] : T(0);
    row = (row - maximum[t]).exp();
    sums[t] = used > 0 ? row.sum() : T(0);
    ArrayView<T>(logits + t * columns + used, columns - used).setZero();  // padding of the vocabulary
  }
}

// loss = log(sum) - (target logit - maximum); its gradient is softmax - one-hot.
template <class T>
double loss_gradient(int64_t tokens, int64_t columns, int64_t used, int64_t first, const int32_t* targets,
                     const T* sums, double scale, T* logits) {
  double loss = 0.0;
  for (int64_t t = 0; t < tokens; ++t) {
    ArrayView<T> row(logits + t * columns, used);
    row *= T(scale) / sums[t];
    const int64_t target = targets[t] - first;
    if (target >= 0 && target < used) row[target] -= T(scale);
    loss += std::log(double(sums[t])) - double(sums[tokens + t]);
  }
  return loss;
}

// As above, times the derivative of the cap, 1 - (logit / cap)^2, by the logit that its exponential stands
// for. A logit whose exponential is zero has no gradient.
template <class T>
double capped_loss_gradient(int64_t tokens, int64_t columns, int64_t used, int64_t first,
                            const int32_t* targets, const T* maximum, const T* sums, double scale, double cap,
                            T* logits) {
  const auto slope = [&](T logit) { return T(1) - logit * logit / T(cap * cap); };
  double loss = 0.0;
  for (int64_t t = 0; t < tokens; ++t) {
    T* const row = logits + t * columns;
    const int64_t target = targets[t] - first;
    for (int64_t c = 0; c < used; ++c) {
      const T e = row[c];
      if (c == target) {
        row[c] = (e / sums[t] - T(1)) * T(scale) * slope(sums[tokens + t] + maximum[t]);
      } else if (e > T(0)) {
        row[c] = e / sums[t] * T(scale) * slope(std::log(e) + maximum[t]);
      }
    }
    loss += std::log(double(sums[t])) - double(sums[tokens + t]);
  }
  return loss;
}

#define MPT_INSTANTIATE(T)                                                                                 \
  template void loss_maximum(int64_t, int64_t, int64_t, const T*, T*);                                     \
  template void loss_exponentials(int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*, T*, T*);   \
  template double loss_gradient(int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*, double, T*); \
  template double capped_loss_gradient(int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*,       \
                                       const T*, double, double, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
