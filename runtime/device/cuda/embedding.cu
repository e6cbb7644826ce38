// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

// A block per token.
template <class T, int N>
__global__ void embedding_forward_kernel(int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                                         const T* table, T* y) {
  const int64_t t = blockIdx.x, row = ids[t] - first;
  const bool here = row >= 0 && row < rows;
  for (int64_t c = threadIdx.x * N; c < hidden; c += int64_t(blockDim.x) * N)
    store(y + t * hidden + c, here ? load<N>(table + row * hidden + c) : Pack<T, N>{});
}

// A block per word that comes up. The list has a word's tokens together, in their own order. One thread makes
// each sum, so it is the same in every run. A thread has N columns.
template <class T, int N>
__global__ void embedding_backward_kernel(WordList list, int64_t hidden, const T* dy, State<T>* dtable) {
  using S = State<T>;
  const int64_t word = blockIdx.x, begin = list.starts[word], end = list.starts[word + 1];
  S* const row = dtable + int64_t(list.words[word]) * hidden;
  for (int64_t c = int64_t(threadIdx.x) * N; c < hidden; c += int64_t(blockDim.x) * N) {
    S sum[N] = {};
#pragma unroll 4
    for (int64_t i = begin; i < end; ++i) {
      const auto pack = load<N>(dy + int64_t(list.tokens[i]) * hidden + c);
      for (int n = 0; n < N; ++n) sum[n] += wide(pack.at[n]);
    }
    for (int n = 0; n < N; ++n) row[c + n] += sum[n];
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
void embedding_backward(cudaStream_t stream, const WordList& list, int64_t hidden, const T* dy,
                        State<T>* dtable) {
  constexpr int kWidth = int(16 / sizeof(T));
  const bool in_packs = pack_width<T>(hidden, dy) > 1;
  const int64_t packs = in_packs ? hidden / kWidth : hidden;
  const auto threads = int(std::clamp<int64_t>(ceil_div(packs, kWarp), 1, kThreads / kWarp) * kWarp);
  launch(stream, dim3(unsigned(list.count)), threads, 0,
         in_packs ? embedding_backward_kernel<T, kWidth> : embedding_backward_kernel<T, 1>, list, hidden, dy,
         dtable);
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
  template void embedding_backward(cudaStream_t, const WordList&, int64_t, const T*, State<T>*);            \
  template void position_forward(cudaStream_t, int64_t, int64_t, const int32_t*, const T*, T*);             \
  template void rotary(cudaStream_t, const AttentionShape&, int64_t, const double*, const int32_t*, double, \
                       int, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
