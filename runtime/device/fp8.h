// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers of 8 bits (Micikevicius et al. 2022, arXiv:2209.05433): e4m3 for inputs and weights, e5m2 for
// gradients of outputs. A tensor's scale maps its largest magnitude to the largest number of its format.

#include <cstdint>
#include <limits>

namespace mpt::runtime {

enum class Fp8 { e4m3, e5m2 };

/// The largest finite number.
constexpr float largest(Fp8 format) { return format == Fp8::e4m3 ? 448.0f : 57344.0f; }

/// Bytes of a weight in both orders, contiguous, followed by the factor.
constexpr int64_t fp8_weight_bytes(int64_t columns, int64_t inner) {
  return 2 * columns * inner + int64_t(sizeof(float));
}

struct Fp8Scale {
  float to_fp8 = 1.0f, from_fp8 = 1.0f;  // factors
};
/// The scale of a tensor with this largest magnitude. If it is not finite, all numbers become NaN. If
/// it is too small for a factor, they become zero.
constexpr Fp8Scale fp8_scale(float magnitude, Fp8 format) {
  const float up = largest(format) / magnitude;
  if (magnitude == 0.0f || up > std::numeric_limits<float>::max()) return {};
  return {up, magnitude / largest(format)};
}

/// Rounds to nearest, ties to even. Values beyond the largest number become that number; NaN stays NaN.
uint8_t to_fp8(float value, Fp8 format);
float from_fp8(uint8_t code, Fp8 format);

/// Rounds the numbers to 8 bits with their own scale, and widens them again.
void round_to_fp8(Fp8 format, int64_t count, const float* from, float* to);

}  // namespace mpt::runtime
