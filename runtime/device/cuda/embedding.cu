// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

constexpr int kTableRows = 8;  // of the table, per block of the backward

// A block per token.
template <class T, int N>
__global__ void embedding_forward_kernel(int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                                         const T* table, T* y) {
  const int64_t t = blockIdx.x, row = ids[t] - first;
  const bool here = row >= 0 && row < rows;
  for (int64_t c = threadIdx.x * N; c < hidden; c += int64_t(blockDim.x) * N)
    store(y + t * hidden + c, here ? load<N>(table + row * hidden + c) : Pack<T, N>{});
}

// A block owns some rows of the table and columns of them, and walks all tokens: each sum is made by one
// thread in the tokens' order, so that it is the same in every run. Most chunks hold none of its words.
template <class T>
__global__ void embedding_backward_kernel(int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                                          const int32_t* ids, const T* dy, State<T>* dtable) {
  __shared__ int32_t chunk[kThreads];
  const int64_t first_row = int64_t(blockIdx.x) * kTableRows;
  const int64_t last_row = min(first_row + kTableRows, rows);
  const int64_t column = int64_t(blockIdx.y) * blockDim.x + threadIdx.x;
  const auto is_own = [&](int64_t row) { return row >= first_row && row < last_row; };
  for (int64_t begin = 0; begin < tokens; begin += blockDim.x) {
    const int64_t count = min(int64_t(blockDim.x), tokens - begin);
    __syncthreads();  // the last chunk has been read
    if (threadIdx.x < count) chunk[threadIdx.x] = ids[begin + threadIdx.x];
    const int own = threadIdx.x < count && is_own(int64_t(chunk[threadIdx.x]) - first) ? 1 : 0;
    if (block_reduce(own, Maximum(), 0) == 0) continue;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = int64_t(chunk[i]) - first;
      if (is_own(row) && column < hidden)
        dtable[row * hidden + column] += wide(dy[(begin + i) * hidden + column]);
    }
  }
}

template <class T>
__global__ void position_forward_kernel(int64_t count, int64_t hidden, const int32_t* positions,
                                        const T* table, T* y) {
  for (int64_t i = grid_index(); i < count; i += grid_stride())
    y[i] = narrow<T>(wide(y[i]) + wide(table[positions[i / hidden] * hidden + i % hidden]));
}

// Su et al. 2021 (arXiv:2104.09864), in the half-split arrangement of Llama's published weights. Angles grow
// with the position, so they are brought below a turn in double before sine and cosine are taken in float.
template <class T>
__global__ void rotary_kernel(AttentionShape s, int64_t half, const double* frequencies,
                              const int32_t* positions, double factor, int direction, T* qkv) {
  using S = State<T>;
  constexpr double kTurn = 6.283185307179586;
  const int64_t turned = s.heads + s.kv_heads;
  for (int64_t i = grid_index(); i < s.tokens() * half; i += grid_stride()) {
    const int64_t token = i / half, pair = i % half;
    double exact = double(positions[token % s.sequence]) * frequencies[pair];
    if (sizeof(S) == sizeof(float)) exact -= floor(exact / kTurn) * kTurn;
    const S angle = S(exact);
    const S cosine = cos(angle) * S(factor), sine = sin(angle) * S(factor) * S(direction);
    T* const row = qkv + token * s.row() + pair;
    for (int64_t head = 0; head < turned; ++head) {
      T* const at = row + head * s.head_dim;
      const S x = wide(at[0]), y = wide(at[half]);
      at[0] = narrow<T>(x * cosine - y * sine);
      at[half] = narrow<T>(y * cosine + x * sine);
    }
  }
}

}  // namespace

template <class T>
void embedding_forward(cudaStream_t stream, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                       const int32_t* ids, const T* table, T* y) {
  constexpr int kWidth = int(16 / sizeof(T));
  const bool packed = pack_width<T>(hidden, table, y) > 1;
  launch(stream, dim3(unsigned(tokens)), kThreads, 0,
         packed ? embedding_forward_kernel<T, kWidth> : embedding_forward_kernel<T, 1>, hidden, first, rows,
         ids, table, y);
}

template <class T>
void embedding_backward(cudaStream_t stream, int64_t tokens, int64_t hidden, int64_t first, int64_t rows,
                        const int32_t* ids, const T* dy, State<T>* dtable) {
  launch(stream, dim3(unsigned(ceil_div(rows, kTableRows)), unsigned(ceil_div(hidden, kThreads))), kThreads,
         0, embedding_backward_kernel<T>, tokens, hidden, first, rows, ids, dy, dtable);
}

template <class T>
void position_forward(cudaStream_t stream, int64_t tokens, int64_t hidden, const int32_t* positions,
                      const T* table, T* y) {
  launch(stream, blocks_for(tokens * hidden), kThreads, 0, position_forward_kernel<T>, tokens * hidden,
         hidden, positions, table, y);
}

template <class T>
void rotary(cudaStream_t stream, const AttentionShape& s, int64_t half, const double* frequencies,
            const int32_t* positions, double factor, int direction, T* qkv) {
  launch(stream, blocks_for(s.tokens() * half), kThreads, 0, rotary_kernel<T>, s, half, frequencies,
         positions, factor, direction, qkv);
}

#define MPT_INSTANTIATE(T)                                                                                  \
  template void embedding_forward(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*,         \
                                  const T*, T*);                                                            \
  template void embedding_backward(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*,        \
                                   const T*, State<T>*);                                                    \
  template void position_forward(cudaStream_t, int64_t, int64_t, const int32_t*, const T*, T*);             \
  template void rotary(cudaStream_t, const AttentionShape&, int64_t, const double*, const int32_t*, double, \
                       int, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
