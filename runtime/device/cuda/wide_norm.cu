// SPDX-License-Identifier: Apache-2.0

// As cpu/wide_norm.cpp; a block per token, and one for its keys.

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/model_kernels.h"

namespace mpt::runtime::cuda {
namespace {

// Queries (0) or keys (1) of a token.
struct NormedPart {
  AttentionShape shape;
  int64_t ranks;
  __device__ int64_t width(int which) const {
    return (which == 0 ? shape.heads : shape.kv_heads) * shape.head_dim;
  }
  __device__ int64_t column(int which) const { return which == 0 ? 0 : shape.heads * shape.head_dim; }
  template <class S>
  __device__ S whole(int which) const {
    return S(width(which) * ranks);
  }
};

template <class T>
__global__ void wide_norm_squares_kernel(NormedPart part, const T* qkv, State<T>* sums) {
  const int64_t t = blockIdx.x;
  const int which = int(blockIdx.y);
  const T* const x = qkv + t * part.shape.row() + part.column(which);
  State<T> sum = 0;
  for (int64_t c = threadIdx.x; c < part.width(which); c += blockDim.x) sum += wide(x[c]) * wide(x[c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) sums[2 * t + which] = sum;
}

template <class T>
__global__ void wide_norm_forward_kernel(NormedPart part, State<T> epsilon, const State<T>* sums,
                                         const T* query_scale, const T* key_scale, T* qkv, T* kept) {
  using S = State<T>;
  const int64_t t = blockIdx.x;
  const int which = int(blockIdx.y);
  T* const x = qkv + t * part.shape.row() + part.column(which);
  T* const old = kept + t * part.shape.rotated() + part.column(which);
  const T* const scale = which == 0 ? query_scale : key_scale;
  const S r = S(1) / sqrt(sums[2 * t + which] / part.whole<S>(which) + epsilon);
  for (int64_t c = threadIdx.x; c < part.width(which); c += blockDim.x) {
    old[c] = x[c];
    x[c] = narrow<T>(wide(x[c]) * r * wide(scale[c]));
  }
}

template <class T>
__global__ void wide_norm_dots_kernel(NormedPart part, const T* query_scale, const T* key_scale,
                                      const T* kept, const T* dqkv, State<T>* dots) {
  const int64_t t = blockIdx.x;
  const int which = int(blockIdx.y);
  const T* const d = dqkv + t * part.shape.row() + part.column(which);
  const T* const x = kept + t * part.shape.rotated() + part.column(which);
  const T* const scale = which == 0 ? query_scale : key_scale;
  State<T> sum = 0;
  for (int64_t c = threadIdx.x; c < part.width(which); c += blockDim.x)
    sum += wide(d[c]) * wide(x[c]) * wide(scale[c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) dots[2 * t + which] = sum;
}

// A thread per column of queries and keys, over all tokens in order.
template <class T>
__global__ void wide_norm_scales_kernel(NormedPart part, State<T> epsilon, const State<T>* sums,
                                        const T* kept, const T* dqkv, State<T>* dquery_scale,
                                        State<T>* dkey_scale) {
  using S = State<T>;
  const int64_t queries = part.width(0);
  for (int64_t c = grid_index(); c < part.shape.rotated(); c += grid_stride()) {
    const int which = c < queries ? 0 : 1;
    S* const to = which == 0 ? dquery_scale + c : dkey_scale + c - queries;
    S sum = *to;
    for (int64_t t = 0; t < part.shape.tokens(); ++t) {
      const S r = S(1) / sqrt(sums[2 * t + which] / part.whole<S>(which) + epsilon);
      sum += wide(dqkv[t * part.shape.row() + c]) * wide(kept[t * part.shape.rotated() + c]) * r;
    }
    *to = sum;
  }
}

template <class T>
__global__ void wide_norm_backward_kernel(NormedPart part, State<T> epsilon, const State<T>* sums,
                                          const State<T>* dots, const T* query_scale, const T* key_scale,
                                          const T* kept, T* dqkv) {
  using S = State<T>;
  const int64_t t = blockIdx.x;
  const int which = int(blockIdx.y);
  T* const d = dqkv + t * part.shape.row() + part.column(which);
  const T* const x = kept + t * part.shape.rotated() + part.column(which);
  const T* const scale = which == 0 ? query_scale : key_scale;
  const S whole = part.whole<S>(which), r = S(1) / sqrt(sums[2 * t + which] / whole + epsilon);
  const S mean = r * r * dots[2 * t + which] / whole;
  for (int64_t c = threadIdx.x; c < part.width(which); c += blockDim.x)
    d[c] = narrow<T>(r * (wide(d[c]) * wide(scale[c]) - wide(x[c]) * mean));
}

dim3 blocks_of_parts(const AttentionShape& s) { return {unsigned(s.tokens()), 2, 1}; }

}  // namespace

template <class T>
void wide_norm_squares(cudaStream_t stream, const AttentionShape& s, const T* qkv, State<T>* sums) {
  launch(stream, blocks_of_parts(s), kThreads, 0, wide_norm_squares_kernel<T>, NormedPart{s, 1}, qkv, sums);
}

template <class T>
void wide_norm_forward(cudaStream_t stream, const AttentionShape& s, int64_t ranks, double epsilon,
                       const State<T>* sums, const T* query_scale, const T* key_scale, T* qkv, T* kept) {
  launch(stream, blocks_of_parts(s), kThreads, 0, wide_norm_forward_kernel<T>, NormedPart{s, ranks},
         State<T>(epsilon), sums, query_scale, key_scale, qkv, kept);
}

template <class T>
void wide_norm_dots(cudaStream_t stream, const AttentionShape& s, const T* query_scale, const T* key_scale,
                    const T* kept, const T* dqkv, State<T>* dots) {
  launch(stream, blocks_of_parts(s), kThreads, 0, wide_norm_dots_kernel<T>, NormedPart{s, 1}, query_scale,
         key_scale, kept, dqkv, dots);
}

template <class T>
void wide_norm_backward(cudaStream_t stream, const AttentionShape& s, int64_t ranks, double epsilon,
                        const State<T>* sums, const State<T>* dots, const T* query_scale, const T* key_scale,
                        const T* kept, T* dqkv, State<T>* dquery_scale, State<T>* dkey_scale) {
  const NormedPart part{s, ranks};
  launch(stream, blocks_for(s.rotated()), kThreads, 0, wide_norm_scales_kernel<T>, part, State<T>(epsilon),
         sums, kept, dqkv, dquery_scale, dkey_scale);
  launch(stream, blocks_of_parts(s), kThreads, 0, wide_norm_backward_kernel<T>, part, State<T>(epsilon), sums,
         dots, query_scale, key_scale, kept, dqkv);
}

#define MPT_INSTANTIATE(T)                                                                                  \
  template void wide_norm_squares(cudaStream_t, const AttentionShape&, const T*, State<T>*);                \
  template void wide_norm_forward(cudaStream_t, const AttentionShape&, int64_t, double, const State<T>*,    \
                                  const T*, const T*, T*, T*);                                              \
  template void wide_norm_dots(cudaStream_t, const AttentionShape&, const T*, const T*, const T*, const T*, \
                               State<T>*);                                                                  \
  template void wide_norm_backward(cudaStream_t, const AttentionShape&, int64_t, double, const State<T>*,   \
                                   const State<T>*, const T*, const T*, const T*, T*, State<T>*, State<T>*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
