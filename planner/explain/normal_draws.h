// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>

namespace mpt::planner {

/// Normal values of mean 0 and standard deviation 1 (Box and Muller 1958), always the same ones. The
/// library's distribution may differ between libraries.
class NormalDraws {
 public:
  double operator()() {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - uniform()));
    return radius * std::cos(2.0 * std::numbers::pi * uniform());
  }

 private:
  double uniform() { return double(random_() >> 11U) * 0x1p-53; }

  std::mt19937_64 random_{20240229};
};

}  // namespace mpt::planner
