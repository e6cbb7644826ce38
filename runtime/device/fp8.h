// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers of 8 bits (Micikevicius et al. 2022, arXiv:2209.05433): e4m3 for inputs and weights, e5m2 for
// gradients of outputs, each tensor scaled so that its largest magnitude is the largest number of its format.

#include <cstdint>
#include <limits>

namespace mpt::runtime {

enum class Fp8 { e4m3, e5m2 };

/// The largest finite number.
constexpr float largest(Fp8 format) { return format == Fp8::e4m3 ? 448.0f : 57344.0f; }

/// Of a weight in both orders, one behind the other, and the factor behind them.
constexpr int64_t fp8_weight_bytes(int64_t columns, int64_t inner) {
  return 2 * columns * inner + int64_t(sizeof(float));
}

struct Fp8Scale {
  float to_fp8 = 1.0f, from_fp8 = 1.0f;  // factors
};
/// For a tensor whose largest magnitude this is. Not finite: NaN comes back. What is too small for a factor
/// becomes zero.
constexpr Fp8Scale fp8_scale(float magnitude, Fp8 format) {
  const float up = largest(format) / magnitude;
  if (magnitude == 0.0f || up > std::numeric_limits<float>::max()) return {};
  return {up, magnitude / largest(format)};
}

/// Nearest, ties to even; beyond the largest number it is that; NaN stays NaN.
uint8_t to_fp8(float value, Fp8 format);
float from_fp8(uint8_t code, Fp8 format);

/// What the numbers are after they were narrowed with their own scale and widened again.
void round_to_fp8(Fp8 format, int64_t count, const float* from, float* to);

}  // namespace mpt::runtime
