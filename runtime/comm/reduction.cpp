// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/reduction.h"

#include <algorithm>
#include <bit>

namespace mpt::runtime {
namespace {

// Blocks this small stay in the first-level cache while all parts are added.
constexpr int64_t kBlock = 2048;

template <class T, class F>
void reduce(const std::vector<const void*>& parts, int64_t begin, int64_t end, T* to, F&& combine) {
  T sum[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    std::copy_n(static_cast<const T*>(parts.front()) + at, count, sum);
    for (size_t p = 1; p < parts.size(); ++p) {
      const T* part = static_cast<const T*>(parts[p]) + at;
      for (int64_t i = 0; i < count; ++i) sum[i] = combine(sum[i], part[i]);
    }
    std::copy_n(sum, count, to + (at - begin));
  }
}

template <class T>
void reduce(ReduceOperation operation, const std::vector<const void*>& parts, int64_t begin, int64_t end,
            void* to) {
  if (operation == ReduceOperation::sum)
    reduce(parts, begin, end, static_cast<T*>(to), [](T a, T b) { return a + b; });
  else
    reduce(parts, begin, end, static_cast<T*>(to), [](T a, T b) { return std::max(a, b); });
}

// Sums of 16-bit parts are computed in float and rounded once.
void reduce_narrow(DataType type, ReduceOperation operation, const std::vector<const void*>& parts,
                   int64_t begin, int64_t end, void* to) {
  float sum[kBlock], part[kBlock];
  for (int64_t at = begin; at < end; at += kBlock) {
    const int64_t count = std::min(kBlock, end - at);
    const auto place = [&](const void* base, int64_t element) {
      return static_cast<const uint16_t*>(base) + element;
    };
    widen(type, place(parts.front(), at), count, sum);
    for (size_t p = 1; p < parts.size(); ++p) {
      widen(type, place(parts[p], at), count, part);
      for (int64_t i = 0; i < count; ++i)
        sum[i] = operation == ReduceOperation::sum ? sum[i] + part[i] : std::max(sum[i], part[i]);
    }
    narrow(type, sum, count, static_cast<uint16_t*>(to) + (at - begin));
  }
}

float from_bfloat16(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if (value != value) return uint16_t(bits >> 16 | 0x40);  // NaN must stay NaN without its low bits
  return uint16_t((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// The compiler's own conversions: round to nearest even, with infinities and subnormal numbers.
float from_float16(uint16_t bits) { return float(std::bit_cast<_Float16>(bits)); }
uint16_t to_float16(float value) { return std::bit_cast<uint16_t>(_Float16(value)); }

}  // namespace

void widen(DataType type, const void* from, int64_t count, float* to) {
  const auto* bits = static_cast<const uint16_t*>(from);
  if (type == DataType::bfloat16) {
    for (int64_t i = 0; i < count; ++i) to[i] = from_bfloat16(bits[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = from_float16(bits[i]);
  }
}

void narrow(DataType type, const float* from, int64_t count, void* to) {
  auto* bits = static_cast<uint16_t*>(to);
  if (type == DataType::bfloat16) {
    for (int64_t i = 0; i < count; ++i) bits[i] = to_bfloat16(from[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) bits[i] = to_float16(from[i]);
  }
}

int64_t size_of(DataType type) { return type == DataType::float64 ? 8 : type == DataType::float32 ? 4 : 2; }

void reduce_in_order(DataType type, ReduceOperation operation, const std::vector<const void*>& parts,
                     int64_t begin, int64_t end, void* to) {
  if (type == DataType::float32) return reduce<float>(operation, parts, begin, end, to);
  if (type == DataType::float64) return reduce<double>(operation, parts, begin, end, to);
  reduce_narrow(type, operation, parts, begin, end, to);
}

}  // namespace mpt::runtime
