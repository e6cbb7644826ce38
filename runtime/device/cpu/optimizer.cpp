// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstring>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

// Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2.
void run(const Call& call, const AdamStep& o) {
  const AdamW& w = o.options;
  call.compute([&]<class T>(auto& f, const T*) {
    const T beta1 = T(w.beta1), beta2 = T(w.beta2), scale = T(w.gradient_scale), epsilon = T(w.epsilon);
    const T step_size = T(w.learning_rate / (1.0 - std::pow(w.beta1, double(w.step))));
    const T second_scale = T(1.0 / (1.0 - std::pow(w.beta2, double(w.step))));
    const T keep = T(1.0 - w.learning_rate * w.weight_decay);
    const T* const gradient = f.state(o.gradient);
    T *const parameter = f.state(o.parameter), *const first_moment = f.state(o.first_moment),
             *const second_moment = f.state(o.second_moment);
    for (int64_t i = 0; i < o.count; ++i) {
      const T g = gradient[i] * scale;
      first_moment[i] = beta1 * first_moment[i] + (T(1) - beta1) * g;
      second_moment[i] = beta2 * second_moment[i] + (T(1) - beta2) * g * g;
      parameter[i] = keep * parameter[i] -
                     step_size * first_moment[i] / (std::sqrt(second_moment[i] * second_scale) + epsilon);
    }
  });
  if (o.copy.data != nullptr) convert(call.type, o.parameter, o.copy.type, o.copy.data, o.count);
  if (o.zeroes) std::memset(o.gradient, 0, size_t(o.count * size_of(call.type)));
}

double sum_of_squares(const Call& call, const Stretch& part) {
  constexpr int64_t kBlock = 4096;  // short enough that floats lose nothing, long enough to vectorise
  return call.compute([&](auto& f, const auto*) {
    const auto* const data = f.in(part.data, part.count);
    double sum = 0.0;
    for (int64_t at = 0; at < part.count; at += kBlock)
      sum += double(view(data + at, std::min(kBlock, part.count - at)).square().sum());
    return sum;
  });
}

}  // namespace mpt::runtime::cpu
