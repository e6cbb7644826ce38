// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rotary positions on the CPU.

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/operator_shapes.h"

namespace mpt::runtime::cpu {

/// Turns of one token (Su et al. 2021, arXiv:2104.09864), in the half-split arrangement of Llama's published
/// weights; `direction` -1 undoes them.
template <class T>
class Turn {
 public:
  Turn(const Rotation& rotation, int64_t token, int direction)
      : cosine_(Eigen::Index(rotation.frequencies.size())), sine_(cosine_.size()) {
    for (Eigen::Index i = 0; i < cosine_.size(); ++i) {
      const double angle = double(rotation.positions[size_t(token)]) * rotation.frequencies[size_t(i)];
      cosine_[i] = T(std::cos(angle) * rotation.factor);
      sine_[i] = T(std::sin(angle) * direction * rotation.factor);
    }
  }

  /// to = from, turned, 2 x frequencies elements, or added to what stands there.
  void apply(const T* from, T* to, bool add) const {
    const Eigen::Index half = cosine_.size();
    const ConstArrayView<T> a(from, half), b(from + half, half);
    ArrayView<T> first(to, half), second(to + half, half);
    if (add) {
      first += a * cosine_ - b * sine_;
      second += b * cosine_ + a * sine_;
    } else {
      first = a * cosine_ - b * sine_;
      second = b * cosine_ + a * sine_;
    }
  }

 private:
  Eigen::Array<T, Eigen::Dynamic, 1> cosine_, sine_;
};

/// Calls `body` with each token of the batch and its turns.
template <class T, class Shape, class Body>
void for_each_token(const Shape& s, const Rotation& rotation, int direction, Body&& body) {
  for (int64_t i = 0; i < s.sequence; ++i) {
    const Turn<T> turn(rotation, i, direction);
    for (int64_t b = 0; b < s.batch; ++b) body(b * s.sequence + i, turn);
  }
}

}  // namespace mpt::runtime::cpu
