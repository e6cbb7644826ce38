// SPDX-License-Identifier: Apache-2.0
#pragma once

// Shared by both kinds of attention kernels: the positions of a head's operands.

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {

/// Gradients are T, or State<T> if blocks of keys are summed.
struct AttentionGradients {
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  int64_t q_row = 0, kv_row = 0;
  bool add = false;  // to the values in place
};

template <class T>
struct Operands {
  AttentionShape shape;
  const T *q, *k, *v;
  int64_t kv_row, keys;  // elements from one key to the next, and keys of one sequence
  // [sequence]: the number of keys that each query sees, null for causal; and the number of first ones among
  // these that it does not see, null if the shape's window decides.
  const int32_t *visible, *hidden;

  __device__ int64_t group() const { return shape.heads / shape.kv_heads; }
  /// The number of keys up to the last one that query i sees.
  __device__ int64_t seen(int64_t i) const {
    return i >= shape.sequence ? 0 : visible != nullptr ? visible[i] : i + 1;
  }
  /// The number of first keys that query i does not see.
  __device__ int64_t unseen(int64_t i) const {
    if (hidden != nullptr) return i >= shape.sequence ? keys : hidden[i];
    return shape.window == 0 || visible != nullptr ? 0 : i + 1 > shape.window ? i + 1 - shape.window : 0;
  }
  __device__ bool sees(int64_t i, int64_t key) const { return key < seen(i) && key >= unseen(i); }
  /// The number of keys up to the last one that a query of [first, first + rows) sees: later ones see more.
  __device__ int64_t seen_by_tile(int64_t first, int64_t rows) const {
    return seen(min(first + rows, shape.sequence) - 1);
  }
  __device__ const T* queries(int64_t batch, int64_t head) const {
    return q + batch * shape.sequence * shape.row() + head * shape.head_dim;
  }
  __device__ const T* of_keys(int64_t batch, int64_t kv_head) const {
    return k + batch * keys * kv_row + kv_head * shape.head_dim;
  }
  __device__ const T* of_values(int64_t batch, int64_t kv_head) const {
    return v + batch * keys * kv_row + kv_head * shape.values();
  }
  /// Offset of a head's first element in buffers [b*s, a*d], and below in [b, a, s].
  __device__ int64_t out(int64_t batch, int64_t head) const {
    return (batch * shape.sequence * shape.heads + head) * shape.values();
  }
  __device__ int64_t statistics(int64_t batch, int64_t head) const {
    return (batch * shape.heads + head) * shape.sequence;
  }
};

/// Joins a result over some keys with that over earlier ones, by their log-sum-exps.
template <class S>
struct Joined {
  S all, own_factor, earlier_factor;
  __device__ Joined(S own, S earlier) {
    const S high = max(own, earlier);
    const bool blind = high == S(-INFINITY);
    all = blind ? high : high + log(exp(own - high) + exp(earlier - high));
    own_factor = blind ? S(0) : exp(own - all);
    earlier_factor = blind ? S(1) : exp(earlier - all);
  }
};

template <class Out, class S>
__device__ void put(Out* to, S value, bool add) {
  *to = narrow<Out>(add ? S(wide(*to)) + value : value);
}

/// Whether the tensor-core kernels of this project apply, among its own kernels.
template <class T>
constexpr bool uses_tensor_cores(const AttentionShape& s) {
  return runtime_attention(s.needs(sizeof(T) == 2), false) == RuntimeAttention::tensor_cores;
}

template <class T, class Out>
void tensor_core_forward(cudaStream_t, const Operands<T>&, bool join, Out* out, float* log_sum_exp);
template <class T, class Out>
void tensor_core_backward(cudaStream_t, const Operands<T>&, const T* dout, const float* log_sum_exp,
                          const float* delta, const AttentionGradients&);

}  // namespace mpt::runtime::cuda
