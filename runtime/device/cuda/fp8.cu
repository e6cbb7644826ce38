// SPDX-License-Identifier: Apache-2.0
#include <cuda_fp8.h>

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/narrowed.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int kTile = 64;            // of a transposition
constexpr int kTileRow = kTile + 4;  // in bytes; rows of a tile begin in different banks.
constexpr int kColumnPack = 16;      // numbers of a column that are written at once

__device__ inline uint8_t narrow_to(Fp8 format, float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE, format == Fp8::e4m3 ? __NV_E4M3 : __NV_E5M2);
}

// The largest magnitude in each block's numbers.
template <class T, int N>
__global__ void magnitude_kernel(int64_t count, const T* x, uint32_t* partial) {
  uint32_t most = 0;
  for (int64_t i = grid_index() * N; i < count; i += grid_stride() * N)
    most = largest_magnitude(load<N>(x + i), most);
  most = block_reduce(most, Maximum(), 0u);
  if (threadIdx.x == 0) partial[blockIdx.x] = most;
}

// A tensor's magnitudes, and the places for its largest one and its factor.
struct Magnitudes {
  const uint32_t* partial;  // of each block of the grid that found them
  int blocks;               // at most kThreads
  uint32_t* found;          // gets the largest; may be null
  float* from_fp8;
};

// Returns the tensor's scale; one thread of the grid writes factor and magnitude.
__device__ float scale_of(Fp8 format, const Magnitudes& m) {
  const uint32_t own = int(threadIdx.x) < m.blocks ? m.partial[threadIdx.x] : 0u;
  const uint32_t most = block_reduce(own, Maximum(), 0u);
  const Fp8Scale scale = fp8_scale(__uint_as_float(most), format);
  if (grid_index() == 0 && blockIdx.y == 0) {
    *m.from_fp8 = scale.from_fp8;
    if (m.found != nullptr) *m.found = most;
  }
  return scale.to_fp8;
}

template <class T, int N>
__device__ Pack<uint8_t, N> narrow_pack(Fp8 format, float scale, const Pack<T, N>& values) {
  Pack<uint8_t, N> out;
  for (int n = 0; n < N; ++n) out.at[n] = narrow_to(format, wide(values.at[n]) * scale);
  return out;
}

template <class T, int N>
__global__ void narrow_kernel(Fp8 format, int64_t count, const T* x, Magnitudes magnitudes, uint8_t* to) {
  const float scale = scale_of(format, magnitudes);
  for (int64_t i = grid_index() * N; i < count; i += grid_stride() * N)
    store(to + i, narrow_pack(format, scale, load<N>(x + i)));
}

// `transposed` [columns, rows]. A tile is read by rows, N numbers in one access, and written by columns, M
// numbers in one. `plain` [rows, columns] may be null.
template <class T, int N, int M>
__device__ void narrow_tile(float scale, Fp8 format, int64_t rows, int64_t columns, const T* x,
                            uint8_t* plain, uint8_t* transposed) {
  __shared__ uint8_t tile[kTile * kTileRow];
  const int64_t first_row = int64_t(blockIdx.y) * kTile, first_column = int64_t(blockIdx.x) * kTile;
  for (int i = int(threadIdx.x); i < kTile * kTile / N; i += kThreads) {
    const int r = i / (kTile / N), c = i % (kTile / N) * N;
    if (first_row + r >= rows || first_column + c >= columns) continue;
    const int64_t at = (first_row + r) * columns + first_column + c;
    const Pack<uint8_t, N> out = narrow_pack(format, scale, load<N>(x + at));
    if (plain != nullptr) store(plain + at, out);
    for (int n = 0; n < N; ++n) tile[r * kTileRow + c + n] = out.at[n];
  }
  __syncthreads();
  for (int i = int(threadIdx.x); i < kTile * kTile / M; i += kThreads) {
    const int c = i / (kTile / M), r = i % (kTile / M) * M;  // neighbours in a warp share a column
    if (first_row + r >= rows || first_column + c >= columns) continue;
    Pack<uint8_t, M> out;
    for (int m = 0; m < M; ++m) out.at[m] = tile[(r + m) * kTileRow + c];
    store<M>(transposed + (first_column + c) * rows + first_row + r, out);
  }
}

template <class T, int N, int M>
__global__ void narrow_transposed_kernel(Fp8 format, int64_t rows, int64_t columns, const T* x,
                                         Magnitudes magnitudes, uint8_t* to) {
  narrow_tile<T, N, M>(scale_of(format, magnitudes), format, rows, columns, x, nullptr, to);
}

template <class T, int N, int M>
__global__ void narrow_both_kernel(Fp8 format, int64_t rows, int64_t columns, const T* x,
                                   Magnitudes magnitudes, uint8_t* plain, uint8_t* transposed) {
  narrow_tile<T, N, M>(scale_of(format, magnitudes), format, rows, columns, x, plain, transposed);
}

// Converts a tensor to 8 bits, N numbers in one access.
template <class T, int N>
class Narrowing {
 public:
  Narrowing(cudaStream_t stream, Fp8 format, int64_t rows, int64_t columns, const T* x)
      : stream_(stream), format_(format), rows_(rows), columns_(columns), x_(x) {}

  Magnitudes magnitudes(const Fp8Magnitude& magnitude, float* from_fp8, void* scratch) const {
    auto* const at = reinterpret_cast<uint32_t*>(magnitude.at);
    if (magnitude.known) return {at, 1, nullptr, from_fp8};
    auto* const partial = static_cast<uint32_t*>(scratch);
    const auto blocks = int(std::min<int64_t>(ceil_div(rows_ * columns_, kThreads * N), kThreads));
    launch(stream_, dim3(unsigned(blocks)), dim3(kThreads), 0, magnitude_kernel<T, N>, rows_ * columns_, x_,
           partial);
    return {partial, blocks, at, from_fp8};
  }
  void narrow(const Magnitudes& m, const Fp8Place& to) const {
    const bool packed = N > 1 && columns_ % N == 0 && rows_ % kColumnPack == 0;
    const dim3 tiles(unsigned(ceil_div(columns_, kTile)), unsigned(ceil_div(rows_, kTile)));
    if (to.columns == nullptr)
      launch_each(stream_, rows_ * columns_ / N, narrow_kernel<T, N>, format_, rows_ * columns_, x_, m,
                  to.rows);
    else if (to.rows == nullptr)
      launch(stream_, tiles, dim3(kThreads), 0,
             packed ? narrow_transposed_kernel<T, N, kColumnPack> : narrow_transposed_kernel<T, 1, 1>,
             format_, rows_, columns_, x_, m, to.columns);
    else
      launch(stream_, tiles, dim3(kThreads), 0,
             packed ? narrow_both_kernel<T, N, kColumnPack> : narrow_both_kernel<T, 1, 1>, format_, rows_,
             columns_, x_, m, to.rows, to.columns);
  }

 private:
  cudaStream_t stream_;
  Fp8 format_;
  int64_t rows_, columns_;
  const T* x_;
};

}  // namespace

int64_t fp8_scratch_bytes() { return kThreads * int64_t(sizeof(uint32_t)); }

template <class T>
void narrow_to_fp8(cudaStream_t stream, Fp8 format, int64_t rows, int64_t columns, const T* x,
                   const Fp8Magnitude& magnitude, const Fp8Place& to, void* scratch) {
  with_packs<T>(in_packs<T>(rows * columns, x, to.rows, to.columns), [&](auto width) {
    const Narrowing<T, width()> narrowing(stream, format, rows, columns, x);
    narrowing.narrow(narrowing.magnitudes(magnitude, to.from_fp8, scratch), to);
  });
}

#define MPT_INSTANTIATE(T)                                                                        \
  template void narrow_to_fp8(cudaStream_t, Fp8, int64_t, int64_t, const T*, const Fp8Magnitude&, \
                              const Fp8Place&, void*);
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
