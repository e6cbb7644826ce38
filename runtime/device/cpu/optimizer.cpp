// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

// Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2.
template <class T>
void adamw(int64_t count, const AdamW& o, const T* gradient, T* parameter, T* first_moment,
           T* second_moment) {
  const T beta1 = T(o.beta1), beta2 = T(o.beta2), scale = T(o.gradient_scale), epsilon = T(o.epsilon);
  const T step_size = T(o.learning_rate / (1.0 - std::pow(o.beta1, double(o.step))));
  const T second_scale = T(1.0 / (1.0 - std::pow(o.beta2, double(o.step))));
  const T keep = T(1.0 - o.learning_rate * o.weight_decay);
  for (int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] * scale;
    first_moment[i] = beta1 * first_moment[i] + (T(1) - beta1) * g;
    second_moment[i] = beta2 * second_moment[i] + (T(1) - beta2) * g * g;
    parameter[i] = keep * parameter[i] -
                   step_size * first_moment[i] / (std::sqrt(second_moment[i] * second_scale) + epsilon);
  }
}

template <class T>
double sum_of_squares(int64_t count, const T* data) {
  constexpr int64_t kBlock = 4096;  // short enough that T loses nothing, long enough to vectorise
  double sum = 0.0;
  for (int64_t at = 0; at < count; at += kBlock) {
    sum += double(ConstArrayView<T>(data + at, std::min(kBlock, count - at)).square().sum());
  }
  return sum;
}

}  // namespace

void run(const Call& call, const AdamStep& o) {
  call.compute([&](auto& f) {
    adamw(o.count, o.options, f.state(o.gradient), f.state(o.parameter), f.state(o.first_moment),
          f.state(o.second_moment));
  });
  if (o.copy.data != nullptr) convert(call.type, o.parameter, o.copy.type, o.copy.data, o.count);
  if (o.zeroes) std::memset(o.gradient, 0, size_t(o.count * size_of(call.type)));
}

double sum_of_squares(const Call& call, const Stretch& part) {
  return call.compute([&](auto& f) { return sum_of_squares(part.count, f.in(part.data, part.count)); });
}

}  // namespace mpt::runtime::cpu
