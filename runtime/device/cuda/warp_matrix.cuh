// SPDX-License-Identifier: Apache-2.0
#pragma once

// Products of small matrices by the 32 lanes of a warp (PTX ISA, mma.m16n8k16 and ldmatrix). Lane 4 g + t
// holds
//   of a [16, 16]: pairs of columns 2t, 2t+1 of rows g, g + 8, then of columns 2t+8, 2t+9;
//   of b [16, 8]:  pairs of rows 2t, 2t+1, then 2t+8, 2t+9, of column g;
//   of c [16, 8]:  columns 2t, 2t+1 of row g, then of row g + 8.

#include "runtime/device/cuda/element.cuh"

namespace mpt::runtime::cuda {

/// Two neighbours, the first in the low half.
template <class T>
__device__ inline uint32_t pair_of(float low, float high) {
  const Pack<T, 2> pack{{narrow<T>(low), narrow<T>(high)}};
  return *reinterpret_cast<const uint32_t*>(&pack);
}
template <class T>
__device__ inline uint32_t load_pair(const T* from) {
  return *reinterpret_cast<const uint32_t*>(from);
}

#ifdef __CUDACC__
template <class T>
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (sizeof(T) == 2 && __is_same(T, Bfloat16)) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}

/// Loads b from rows in shared memory. Lane i of the first 16 gives the address of row i, of which 8 elements
/// are used.
template <class T>
__device__ inline void load_rows(uint32_t (&b)[2], const T* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(b[0]), "=r"(b[1])
               : "r"(address));
}
#else
// The same by definition, for interpreted kernels.
template <class T>
void multiply_add(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  uint32_t of_warp[kWarp][6];
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b[0], b[1]};
  for (int word = 0; word < 6; ++word) {
    uint32_t column[kWarp];
    cuda_on_cpu::gather_from_lanes(own[word], column);
    for (int lane = 0; lane < kWarp; ++lane) of_warp[lane][word] = column[lane];
  }
  const auto half = [](uint32_t word, int which) {
    T pair[2];
    __builtin_memcpy(pair, &word, sizeof pair);
    return wide(pair[which]);
  };
  const int lane = cuda_on_cpu::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + (i >= 2 ? 8 : 0), column = 2 * t + i % 2;
    for (int k = 0; k < 16; ++k) {
      const float left = half(of_warp[row % 8 * 4 + k % 8 / 2][(row >= 8) + 2 * (k >= 8)], k % 2);
      const float right = half(of_warp[column * 4 + k % 8 / 2][4 + (k >= 8)], k % 2);
      c[i] += left * right;
    }
  }
}

template <class T>
void load_rows(uint32_t (&b)[2], const T* row) {
  const T* rows[kWarp];
  cuda_on_cpu::gather_from_lanes(row, rows);
  const int lane = cuda_on_cpu::lane(), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 2; ++i) {
    const T pair[2] = {rows[8 * i + 2 * t][g], rows[8 * i + 2 * t + 1][g]};
    __builtin_memcpy(&b[i], pair, sizeof pair);
  }
}
#endif

}  // namespace mpt::runtime::cuda
