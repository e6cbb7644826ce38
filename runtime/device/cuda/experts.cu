// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

// A thread per token: experts are few beside the width of the rows around this.
template <class T>
__global__ void router_forward_kernel(int64_t tokens, int64_t experts, int64_t top, const T* logits,
                                      State<T>* probabilities, int32_t* chosen, State<T>* weights) {
  using S = State<T>;
  for (int64_t t = grid_index(); t < tokens; t += grid_stride()) {
    const T* const logit = logits + t * experts;
    S* const p = probabilities + t * experts;
    S maximum = wide(logit[0]), sum = 0;
    for (int64_t e = 1; e < experts; ++e) maximum = max(maximum, wide(logit[e]));
    for (int64_t e = 0; e < experts; ++e) sum += p[e] = exp(wide(logit[e]) - maximum);
    for (int64_t e = 0; e < experts; ++e) p[e] /= sum;
    S of_chosen = 0;
    for (int64_t j = 0; j < top; ++j) {
      // Those that come before in the order (larger, then lower number) were chosen already.
      const int64_t last = j == 0 ? -1 : chosen[t * top + j - 1];
      int64_t best = -1;
      for (int64_t e = 0; e < experts; ++e) {
        const bool after = last < 0 || p[e] < p[last] || (p[e] == p[last] && e > last);
        if (after && (best < 0 || p[e] > p[best])) best = e;
      }
      chosen[t * top + j] = int32_t(best);
      of_chosen += p[best];
    }
    for (int64_t j = 0; j < top; ++j) weights[t * top + j] = p[chosen[t * top + j]] / of_chosen;
  }
}

// w_j = p_j / s with s the sum of the chosen: dp_j = (dw_j - sum_i w_i dw_i) / s; then softmax's own.
template <class T>
__global__ void router_backward_kernel(int64_t tokens, int64_t experts, int64_t top,
                                       const State<T>* probabilities, const int32_t* chosen,
                                       const State<T>* dweights, const State<T>* balance, T* dlogits) {
  using S = State<T>;
  for (int64_t t = grid_index(); t < tokens; t += grid_stride()) {
    const S* const p = probabilities + t * experts;
    S sum = 0, mean = 0;
    for (int64_t j = 0; j < top; ++j) {
      const S of_chosen = p[chosen[t * top + j]];
      sum += of_chosen;
      mean += of_chosen * dweights[t * top + j];
    }
    const auto gradient = [&](int64_t e) {
      S d = balance[t * experts + e];
      for (int64_t j = 0; j < top; ++j) {
        if (chosen[t * top + j] == e) d += (dweights[t * top + j] - mean / sum) / sum;
      }
      return d;
    };
    S dot = 0;
    for (int64_t e = 0; e < experts; ++e) dot += p[e] * gradient(e);
    for (int64_t e = 0; e < experts; ++e) dlogits[t * experts + e] = narrow<T>(p[e] * (gradient(e) - dot));
  }
}

template <class T>
__global__ void gather_rows_kernel(int64_t count, int64_t columns, const int32_t* rows, const T* x, T* y) {
  for (int64_t i = grid_index(); i < count * columns; i += grid_stride())
    y[i] = x[rows[i / columns] * columns + i % columns];
}

template <class T>
__global__ void sum_rows_kernel(int64_t tokens, int64_t top, int64_t columns, const int32_t* rows, const T* x,
                                T* y) {
  for (int64_t i = grid_index(); i < tokens * columns; i += grid_stride()) {
    const int64_t t = i / columns, c = i % columns;
    State<T> sum = 0;
    for (int64_t j = 0; j < top; ++j) sum += wide(x[rows[t * top + j] * columns + c]);
    y[i] = narrow<T>(sum);
  }
}

template <class T>
__global__ void scale_rows_kernel(int64_t rows, int64_t columns, const State<T>* factors, const T* x, T* y) {
  for (int64_t i = grid_index(); i < rows * columns; i += grid_stride())
    y[i] = narrow<T>(wide(x[i]) * factors[i / columns]);
}

template <class T>
__global__ void row_dots_kernel(int64_t columns, const T* a, const T* b, State<T>* dots) {
  const int64_t r = blockIdx.x;
  State<T> sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    sum += wide(a[r * columns + c]) * wide(b[r * columns + c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) dots[r] = sum;
}

}  // namespace

template <class T>
void router_forward(cudaStream_t stream, int64_t tokens, int64_t experts, int64_t top, const T* logits,
                    State<T>* probabilities, int32_t* chosen, State<T>* weights) {
  launch(stream, blocks_for(tokens), kThreads, 0, router_forward_kernel<T>, tokens, experts, top, logits,
         probabilities, chosen, weights);
}

template <class T>
void router_backward(cudaStream_t stream, int64_t tokens, int64_t experts, int64_t top,
                     const State<T>* probabilities, const int32_t* chosen, const State<T>* dweights,
                     const State<T>* balance, T* dlogits) {
  launch(stream, blocks_for(tokens), kThreads, 0, router_backward_kernel<T>, tokens, experts, top,
         probabilities, chosen, dweights, balance, dlogits);
}

template <class T>
void gather_rows(cudaStream_t stream, int64_t count, int64_t columns, const int32_t* rows, const T* x, T* y) {
  launch(stream, blocks_for(count * columns), kThreads, 0, gather_rows_kernel<T>, count, columns, rows, x, y);
}

template <class T>
void sum_rows(cudaStream_t stream, int64_t tokens, int64_t top, int64_t columns, const int32_t* rows,
              const T* x, T* y) {
  launch(stream, blocks_for(tokens * columns), kThreads, 0, sum_rows_kernel<T>, tokens, top, columns, rows, x,
         y);
}

template <class T>
void scale_rows(cudaStream_t stream, int64_t rows, int64_t columns, const State<T>* factors, const T* x,
                T* y) {
  launch(stream, blocks_for(rows * columns), kThreads, 0, scale_rows_kernel<T>, rows, columns, factors, x, y);
}

template <class T>
void row_dots(cudaStream_t stream, int64_t rows, int64_t columns, const T* a, const T* b, State<T>* dots) {
  launch(stream, dim3(unsigned(rows)), kThreads, 0, row_dots_kernel<T>, columns, a, b, dots);
}

#define MPT_INSTANTIATE(T)                                                                                \
  template void router_forward(cudaStream_t, int64_t, int64_t, int64_t, const T*, State<T>*, int32_t*,    \
                               State<T>*);                                                                \
  template void router_backward(cudaStream_t, int64_t, int64_t, int64_t, const State<T>*, const int32_t*, \
                                const State<T>*, const State<T>*, T*);                                    \
  template void gather_rows(cudaStream_t, int64_t, int64_t, const int32_t*, const T*, T*);                \
  template void sum_rows(cudaStream_t, int64_t, int64_t, int64_t, const int32_t*, const T*, T*);          \
  template void scale_rows(cudaStream_t, int64_t, int64_t, const State<T>*, const T*, T*);                \
  template void row_dots(cudaStream_t, int64_t, int64_t, const T*, const T*, State<T>*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
