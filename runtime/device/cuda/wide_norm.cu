// SPDX-License-Identifier: Apache-2.0

// Like cpu/wide_norm.cpp, with one block for a token's queries and one for its keys.

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

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

void run(StreamDevice& gpu, DataType type, const WideNormSquares& o) {
  MPT_DISPATCH(type, launch(gpu.stream(), blocks_of_parts(o.shape), kThreads, 0, wide_norm_squares_kernel<T>,
                            NormedPart{o.shape, 1}, o.qkv, o.sums));
}

void run(StreamDevice& gpu, DataType type, const WideNormForward& o) {
  MPT_DISPATCH(type, launch(gpu.stream(), blocks_of_parts(o.shape), kThreads, 0, wide_norm_forward_kernel<T>,
                            NormedPart{o.shape, o.ranks}, o.epsilon, o.sums, o.query_scale, o.key_scale,
                            o.qkv, o.kept));
}

void run(StreamDevice& gpu, DataType type, const WideNormDots& o) {
  MPT_DISPATCH(type, launch(gpu.stream(), blocks_of_parts(o.shape), kThreads, 0, wide_norm_dots_kernel<T>,
                            NormedPart{o.shape, 1}, o.query_scale, o.key_scale, o.kept, o.dqkv, o.dots));
}

void run(StreamDevice& gpu, DataType type, const WideNormBackward& o) {
  const NormedPart part{o.shape, o.ranks};
  MPT_DISPATCH(type, {
    launch_each(gpu.stream(), o.shape.rotated(), wide_norm_scales_kernel<T>, part, o.epsilon, o.sums, o.kept,
                o.dqkv, o.dquery_scale, o.dkey_scale);
    launch(gpu.stream(), blocks_of_parts(o.shape), kThreads, 0, wide_norm_backward_kernel<T>, part, o.epsilon,
           o.sums, o.dots, o.query_scale, o.key_scale, o.kept, o.dqkv);
  });
}

}  // namespace mpt::runtime::cuda
