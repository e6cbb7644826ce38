// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
void loss_maximum(const LossShape& s, const T* logits, T* maximum) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    maximum[t] = s.used > 0 ? ConstArrayView<T>(logits + t * s.columns, s.used).maxCoeff()
                            : std::numeric_limits<T>::lowest();
  }
}

template <class T>
void loss_exponentials(const LossShape& s, const int32_t* targets, const T* maximum, T* logits, T* sums) {
  for (int64_t t = 0; t < s.tokens; ++t) {
    ArrayView<T> row(logits + t * s.columns, s.used);
    const int64_t target = targets[t] - s.first;
    const bool here = target >= 0 && target < s.used;
    sums[s.tokens + t] = here ? row[target] - maximum[t] : T(0);
    row = (row - maximum[t]).exp();
    sums[t] = s.used > 0 ? row.sum() : T(0);
    ArrayView<T>(logits + t * s.columns + s.used, s.columns - s.used).setZero();  // padding of the vocabulary
  }
}

// loss = log(sum) - (target logit - maximum); its gradient is softmax - one-hot.
template <class T>
double loss_gradient(const LossShape& s, const int32_t* targets, const T* sums, double scale, T* logits) {
  double loss = 0.0;
  for (int64_t t = 0; t < s.tokens; ++t) {
    ArrayView<T> row(logits + t * s.columns, s.used);
    row *= T(scale) / sums[t];
    const int64_t target = targets[t] - s.first;
    if (target >= 0 && target < s.used) row[target] -= T(scale);
    loss += std::log(double(sums[t])) - double(sums[s.tokens + t]);
  }
  return loss;
}

// As above, times the derivative of the cap, 1 - (logit / cap)^2, by the logit that its exponential stands
// for. A logit whose exponential is zero has no gradient.
template <class T>
double capped_loss_gradient(const LossShape& s, const int32_t* targets, const T* maximum, const T* sums,
                            double scale, double cap, T* logits) {
  const auto slope = [&](T logit) { return T(1) - logit * logit / T(cap * cap); };
  double loss = 0.0;
  for (int64_t t = 0; t < s.tokens; ++t) {
    T* const row = logits + t * s.columns;
    const int64_t target = targets[t] - s.first;
    for (int64_t c = 0; c < s.used; ++c) {
      const T e = row[c];
      if (c == target) {
        row[c] = (e / sums[t] - T(1)) * T(scale) * slope(sums[s.tokens + t] + maximum[t]);
      } else if (e > T(0)) {
        row[c] = e / sums[t] * T(scale) * slope(std::log(e) + maximum[t]);
      }
    }
    loss += std::log(double(sums[t])) - double(sums[s.tokens + t]);
  }
  return loss;
}

}  // namespace

void run(const Call& call, const LossMaximum& o) {
  const LossShape& s = o.shape;
  call.compute([&](auto& f) { loss_maximum(s, f.in(o.logits, s.tokens * s.columns), f.state(o.maximum)); });
}

void run(const Call& call, const LossExponentials& o) {
  const LossShape& s = o.shape;
  call.compute([&](auto& f) {
    loss_exponentials(s, o.targets, f.state(o.maximum), f.in_out(o.logits, s.tokens * s.columns),
                      f.state(o.sums));
  });
}

void run(const Call& call, const LossGradient& o) {
  const LossShape& s = o.shape;
  call.compute([&](auto& f) {
    auto* const logits = f.in_out(o.logits, s.tokens * s.columns);
    *o.loss += o.cap > 0.0 ? capped_loss_gradient(s, o.targets, f.state(o.maximum), f.state(o.sums), o.scale,
                                                  o.cap, logits)
                           : loss_gradient(s, o.targets, f.state(o.sums), o.scale, logits);
  });
}

}  // namespace mpt::runtime::cpu
