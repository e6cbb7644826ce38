// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int kTile = 64;            // of a transposition
constexpr int kTileRow = kTile + 4;  // in bytes; rows of a tile begin in different banks.
constexpr int kColumnPack = 16;      // numbers of a column that are written at once

__device__ inline uint8_t narrow_to(Fp8 format, float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, format == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

// The largest of its numbers per block. As bits of a positive number, NaN is larger than all.
template <class T, int N>
__global__ void magnitude_kernel(int64_t count, const T* x, uint32_t* partial) {
  uint32_t most = 0;
  for (int64_t i = grid_index() * N; i < count; i += grid_stride() * N) {
    const auto values = load<N>(x + i);
    for (int n = 0; n < N; ++n) most = Maximum()(most, __float_as_uint(fabsf(wide(values.at[n]))));
  }
  most = block_reduce(most, Maximum(), 0u);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

// Of a tensor, one per block of the grid that found them.
struct Magnitudes {
  const uint32_t* partial;
  int blocks;  // at most kThreads
};

// The tensor's scale from its blocks' magnitudes; one thread of the grid writes down how to get back.
__device__ float scale_of(Fp8 format, const Magnitudes& m, float* from_fp8) {
  const uint32_t own = int(threadIdx.x) < m.blocks ? m.partial[threadIdx.x] : 0u;
  const Fp8Scale scale = fp8_scale(__uint_as_float(block_reduce(own, Maximum(), 0u)), format);
  if (grid_index() == 0 && blockIdx.y == 0) *from_fp8 = scale.from_fp8;
  return scale.to_fp8;
}

template <class T, int N>
__global__ void narrow_kernel(Fp8 format, int64_t count, const T* x, Magnitudes magnitudes, uint8_t* to,
                              float* from_fp8) {
  const float scale = scale_of(format, magnitudes, from_fp8);
  for (int64_t i = grid_index() * N; i < count; i += grid_stride() * N) {
    const auto values = load<N>(x + i);
    Pack<uint8_t, N> out;
    for (int n = 0; n < N; ++n) out.at[n] = narrow_to(format, wide(values.at[n]) * scale);
    store(to + i, out);
  }
}

// to [columns, rows]: tiles are read by rows, N numbers in one access, and written by columns, M in one.
template <class T, int N, int M>
__global__ void narrow_transposed_kernel(Fp8 format, int64_t rows, int64_t columns, const T* x,
                                         Magnitudes magnitudes, uint8_t* to, float* from_fp8) {
  __shared__ uint8_t tile[kTile * kTileRow];
  const float scale = scale_of(format, magnitudes, from_fp8);
  const int64_t first_row = int64_t(blockIdx.y) * kTile, first_column = int64_t(blockIdx.x) * kTile;
  for (int i = int(threadIdx.x); i < kTile * kTile / N; i += kThreads) {
    const int r = i / (kTile / N), c = i % (kTile / N) * N;
    if (first_row + r >= rows || first_column + c >= columns) continue;
    const auto values = load<N>(x + (first_row + r) * columns + first_column + c);
    for (int n = 0; n < N; ++n) tile[r * kTileRow + c + n] = narrow_to(format, wide(values.at[n]) * scale);
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < kTile * kTile / M; i += kThreads) {
    const int c = i / (kTile / M), r = i % (kTile / M) * M;  // neighbours in a column by neighbours in a warp
    if (first_row + r >= rows || first_column + c >= columns) continue;
    Pack<uint8_t, M> out;
    for (int m = 0; m < M; ++m) out.at[m] = tile[(r + m) * kTileRow + c];
    store<M>(to + (first_column + c) * rows + first_row + r, out);
  }
}

}  // namespace

int64_t fp8_scratch_bytes() { return kThreads * int64_t(sizeof(uint32_t)); }

template <class T>
void narrow_to_fp8(cudaStream_t stream, Fp8 format, int64_t rows, int64_t columns, bool transposed,
                   const T* x, uint8_t* to, float* from_fp8, void* scratch) {
  const int64_t count = rows * columns;
  auto* const partial = static_cast<uint32_t*>(scratch);
  const auto flat = [&](auto width) {
    constexpr int N = decltype(width)::value;
    const Magnitudes magnitudes{partial, int(std::min<int64_t>(ceil_div(count, kThreads * N), kThreads))};
    launch(stream, dim3(unsigned(magnitudes.blocks)), dim3(kThreads), 0, magnitude_kernel<T, N>, count, x,
           partial);
    if (transposed) {
      const bool packed = N > 1 && columns % N == 0 && rows % kColumnPack == 0;
      launch(stream, dim3(unsigned(ceil_div(columns, kTile)), unsigned(ceil_div(rows, kTile))),
             dim3(kThreads), 0,
             packed ? narrow_transposed_kernel<T, N, kColumnPack> : narrow_transposed_kernel<T, 1, 1>, format,
             rows, columns, x, magnitudes, to, from_fp8);
    } else {
      launch(stream, blocks_for(count / N), dim3(kThreads), 0, narrow_kernel<T, N>, format, count, x,
             magnitudes, to, from_fp8);
    }
  };
  if (pack_width<T>(count, x, to) > 1) {
    flat(std::integral_constant<int, int(16 / sizeof(T))>());
  } else {
    flat(std::integral_constant<int, 1>());
  }
}

#define MPT_INSTANTIATE(T) \
  template void narrow_to_fp8(cudaStream_t, Fp8, int64_t, int64_t, bool, const T*, uint8_t*, float*, void*);
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
