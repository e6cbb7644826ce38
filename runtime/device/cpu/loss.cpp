// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

void run(const Call& call, const LossMaximum& o) {
  const LossShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T* const logits = f.in(o.logits, s.tokens * s.columns);
    T* const maximum = f.state(o.maximum);
    for (int64_t t = 0; t < s.tokens; ++t)
      maximum[t] =
          s.used > 0 ? view(logits + t * s.columns, s.used).maxCoeff() : std::numeric_limits<T>::lowest();
  });
}

void run(const Call& call, const LossExponentials& o) {
  const LossShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T* const maximum = f.state(o.maximum);
    T *const logits = f.in_out(o.logits, s.tokens * s.columns), *const sums = f.state(o.sums);
    for (int64_t t = 0; t < s.tokens; ++t) {
      auto row = view(logits + t * s.columns, s.used);
      const int64_t target = o.targets[t] - s.first;
      sums[s.tokens + t] = target >= 0 && target < s.used ? row[target] - maximum[t] : T(0);
      row = (row - maximum[t]).exp();
      sums[t] = s.used > 0 ? row.sum() : T(0);
      view(logits + t * s.columns + s.used, s.columns - s.used).setZero();  // padding of the vocabulary
    }
  });
}

// loss = log(sum) - (target logit - maximum); its gradient is softmax - one-hot. That of capped logits is
// times the derivative of the cap, 1 - (logit / cap)^2, by the logit that its exponential stands for. A logit
// whose exponential is zero has no gradient.
void run(const Call& call, const LossGradient& o) {
  const LossShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const maximum = f.state(o.maximum), *const sums = f.state(o.sums), scale = T(o.scale);
    T* const logits = f.in_out(o.logits, s.tokens * s.columns);
    const auto slope = [&](T logit) { return T(1) - logit * logit / T(o.cap * o.cap); };
    double loss = 0.0;
    for (int64_t t = 0; t < s.tokens; ++t) {
      auto row = view(logits + t * s.columns, s.used);
      const int64_t target = o.targets[t] - s.first;
      if (o.cap > 0.0) {
        for (int64_t c = 0; c < s.used; ++c) {
          const T e = row[c];
          if (c == target)
            row[c] = (e / sums[t] - T(1)) * scale * slope(sums[s.tokens + t] + maximum[t]);
          else if (e > T(0))
            row[c] = e / sums[t] * scale * slope(std::log(e) + maximum[t]);
        }
      } else {
        row *= scale / sums[t];
        if (target >= 0 && target < s.used) row[target] -= scale;
      }
      loss += std::log(double(sums[t])) - double(sums[s.tokens + t]);
    }
    *o.loss += loss;
  });
}

}  // namespace mpt::runtime::cpu
