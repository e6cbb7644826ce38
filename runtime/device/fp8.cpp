// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/fp8.h"

#include <bit>
#include <cmath>

namespace mpt::runtime {
namespace {

struct BitLayout {
  int mantissa, bias;
};
constexpr BitLayout layout(Fp8 format) { return format == Fp8::e4m3 ? BitLayout{3, 7} : BitLayout{2, 15}; }
constexpr uint8_t kNan = 0x7f;  // of either format

constexpr uint8_t to_code(float value, Fp8 format) {
  const auto [mantissa, bias] = layout(format);
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = uint8_t(bits >> 31 << 7);
  if (value != value) return uint8_t(sign | kNan);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude >= std::bit_cast<uint32_t>(largest(format)))
    return uint8_t(sign | (format == Fp8::e4m3 ? 0x7e : 0x7b));
  // The number is significand x 2^exponent; the lowest `dropped` bits of the significand are dropped.
  const int exponent = int(magnitude >> 23);
  const uint32_t significand = (magnitude & 0x7fffffu) | (exponent > 0 ? 0x800000u : 0u);
  const int lowest = 127 - bias + 1;  // biased exponent of the smallest normal number
  const int below = exponent < lowest ? lowest - exponent : 0;
  const int dropped = 23 - mantissa + below;
  if (dropped > 24) return sign;
  uint32_t kept = significand >> dropped;
  const uint32_t rest = significand & ((1u << dropped) - 1), half = 1u << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1u) != 0)) ++kept;
  // A significand overflow carries into the exponent, and a rounded-up subnormal becomes normal, without
  // special cases.
  const uint32_t code =
      below > 0 ? kept : (uint32_t(exponent - lowest) << mantissa) + kept;  // kept has the leading one
  return uint8_t(sign | code);
}

}  // namespace

uint8_t to_fp8(float value, Fp8 format) { return to_code(value, format); }

float from_fp8(uint8_t code, Fp8 format) {
  const auto [mantissa, bias] = layout(format);
  const int exponent = (code & 0x7f) >> mantissa, fraction = code & ((1 << mantissa) - 1);
  const float sign = (code & 0x80) != 0 ? -1.0f : 1.0f;
  if (format == Fp8::e4m3 ? (code & 0x7f) == kNan : exponent == 31)
    return format == Fp8::e5m2 && fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                                                : std::numeric_limits<float>::quiet_NaN();
  if (exponent == 0) return sign * std::ldexp(float(fraction), 1 - bias - mantissa);
  return sign * std::ldexp(float(fraction + (1 << mantissa)), exponent - bias - mantissa);
}

void round_to_fp8(Fp8 format, int64_t count, const float* from, float* to) {
  float magnitude = 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    // NaN is larger than all.
    if (!(std::fabs(from[i]) <= magnitude)) magnitude = std::fabs(from[i]);
    if (magnitude != magnitude) break;
  }
  const Fp8Scale scale = fp8_scale(magnitude, format);
  for (int64_t i = 0; i < count; ++i)
    to[i] = from_fp8(to_fp8(from[i] * scale.to_fp8, format), format) * scale.from_fp8;
}

}  // namespace mpt::runtime
