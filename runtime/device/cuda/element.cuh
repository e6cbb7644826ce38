// SPDX-License-Identifier: Apache-2.0
#pragma once

// Elements, packs of them, and sums over a block of threads. Computation uses the state type (float for 16
// bits) and is deterministic: there are no atomic additions, and the order of sums depends on shapes alone.
// Atomic maxima do not depend on order.

#include <type_traits>

#include "runtime/device/cuda/launch.h"

namespace mpt::runtime::cuda {

__device__ inline float wide(float value) { return value; }
__device__ inline double wide(double value) { return value; }
__device__ inline float wide(Bfloat16 value) { return __bfloat162float(value); }
__device__ inline float wide(Half value) { return __half2float(value); }

template <class T>
__device__ inline T narrow(State<T> value) {
  return T(value);
}
template <>
__device__ inline Bfloat16 narrow<Bfloat16>(float value) {
  return __float2bfloat16(value);
}
template <>
__device__ inline Half narrow<Half>(float value) {
  return __float2half(value);
}

template <class S>
__device__ S logistic(S x) {
  return S(1) / (S(1) + exp(-x));
}

/// N neighbours that are read or written in one access of at most 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T at[N];
};
template <int N, class T>
__device__ inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ inline void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

/// Whether 16 bytes of T can be one access in rows of `columns` elements at these addresses.
template <class T, class... Pointers>
bool in_packs(int64_t columns, Pointers... pointers) {
  const bool aligned = ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
  return aligned && columns % int64_t(16 / sizeof(T)) == 0;
}

/// Calls `go` with a constant: the number of elements of T in one access, of 16 bytes if `if_packs`, else 1.
template <class T, class Go>
void with_packs(bool if_packs, Go&& go) {
  if_packs ? go(std::integral_constant<int, int(16 / sizeof(T))>()) : go(std::integral_constant<int, 1>());
}

/// First number and stride of this thread in a grid-stride loop.
__device__ inline int64_t grid_index() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ inline int64_t grid_stride() { return int64_t(gridDim.x) * blockDim.x; }

struct Sum {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a + b;
  }
};
struct Maximum {
  template <class W>
  __device__ W operator()(W a, W b) const {
    return a > b ? a : b;
  }
};

/// `value` joined over all lanes of the warp; every lane gets the result.
template <class W, class Join>
__device__ W warp_reduce(W value, Join join) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2)
    value = join(value, __shfl_xor_sync(0xffffffffu, value, distance));
  return value;
}

/// `value` joined over all threads of the block; every thread gets the result. Blocks are whole warps in x.
template <class W, class Join>
__device__ W block_reduce(W value, Join join, W identity) {
  __shared__ W partial[kWarp];
  const int lane = int(threadIdx.x) % kWarp;
  value = warp_reduce(value, join);
  __syncthreads();  // the result of an earlier call has been read
  if (lane == 0) partial[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_reduce(lane < int(blockDim.x) / kWarp ? partial[lane] : identity, join);
}
template <class W>
__device__ W block_sum(W value) {
  return block_reduce(value, Sum(), W(0));
}

/// A magnitude as the bits of a float that is not negative: NaN is larger than all others.
__device__ inline uint32_t magnitude_bits(float value) { return __float_as_uint(fabsf(value)); }
template <class T, int N>
__device__ uint32_t largest_magnitude(const Pack<T, N>& pack, uint32_t most) {
  for (int n = 0; n < N; ++n) most = Maximum()(most, magnitude_bits(float(wide(pack.at[n]))));
  return most;
}
/// `most` is joined over all threads of the grid; `magnitude` is null if it is not wanted.
__device__ inline void raise_magnitude(void* magnitude, uint32_t most) {
  if (magnitude == nullptr) return;
  most = block_reduce(most, Maximum(), 0u);
  if (threadIdx.x == 0) atomicMax(static_cast<unsigned*>(magnitude), most);
}

}  // namespace mpt::runtime::cuda
