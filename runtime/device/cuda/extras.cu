// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/model_kernels.h"

namespace mpt::runtime::cuda {
namespace {

template <class T>
__global__ void scale_kernel(int64_t count, State<T> factor, const T* x, T* y) {
  for (int64_t i = grid_index(); i < count; i += grid_stride()) y[i] = narrow<T>(wide(x[i]) * factor);
}

template <class T>
__global__ void soft_cap_kernel(int64_t count, State<T> cap, T* x) {
  for (int64_t i = grid_index(); i < count; i += grid_stride())
    x[i] = narrow<T>(cap * tanh(wide(x[i]) / cap));
}

// A block per token. The derivative of the cap is 1 - (logit / cap)^2, by the logit that an exponential
// stands for; one whose exponential is zero has no gradient.
template <class T>
__global__ void capped_loss_gradient_kernel(int64_t tokens, int64_t columns, int64_t used, int64_t first,
                                            const int32_t* targets, const State<T>* maximum,
                                            const State<T>* sums, State<T> scale, State<T> cap, T* logits,
                                            double* losses) {
  using S = State<T>;
  const int64_t t = blockIdx.x, target = int64_t(targets[t]) - first;
  T* const row = logits + t * columns;
  for (int64_t c = threadIdx.x; c < used; c += blockDim.x) {
    const S e = wide(row[c]);
    if (c != target && e == S(0)) continue;
    const S logit = (c == target ? sums[tokens + t] : log(e)) + maximum[t];
    const S p = e / sums[t] - (c == target ? S(1) : S(0));
    row[c] = narrow<T>(p * scale * (S(1) - logit * logit / (cap * cap)));
  }
  if (threadIdx.x == 0) losses[t] = log(double(sums[t])) - double(sums[tokens + t]);
}

// A warp per token and head: the sum of exponentials grows by the sink's, and what values gave shrinks alike.
template <class T>
__global__ void sink_forward_kernel(AttentionShape s, const T* sinks, T* out, State<T>* log_sum_exp) {
  using S = State<T>;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t values = s.values();
  for (int64_t i = grid_index() / kWarp; i < s.tokens() * s.heads; i += grid_stride() / kWarp) {
    const int64_t token = i / s.heads, head = i % s.heads;
    const int64_t at = (token / s.sequence * s.heads + head) * s.sequence + token % s.sequence;
    const S lse = log_sum_exp[at], sink = wide(sinks[head]), high = max(lse, sink);
    const S sum = high + log(exp(lse - high) + exp(sink - high)), factor = exp(lse - sum);
    __syncwarp();  // every lane has read what one writes
    for (int64_t c = lane; c < values; c += kWarp)
      out[i * values + c] = narrow<T>(wide(out[i * values + c]) * factor);
    if (lane == 0) log_sum_exp[at] = sum;
  }
}

// A block per head, its threads over tokens.
template <class T>
__global__ void sink_backward_kernel(AttentionShape s, const T* sinks, const T* dout, const T* out,
                                     const State<T>* log_sum_exp, State<T>* dsinks) {
  using S = State<T>;
  const int64_t head = blockIdx.x, values = s.values();
  S sum = 0;
  for (int64_t token = threadIdx.x; token < s.tokens(); token += blockDim.x) {
    const int64_t at = (token / s.sequence * s.heads + head) * s.sequence + token % s.sequence;
    const int64_t row = (token * s.heads + head) * values;
    S dot = 0;
    for (int64_t c = 0; c < values; ++c) dot += wide(dout[row + c]) * wide(out[row + c]);
    sum -= exp(wide(sinks[head]) - log_sum_exp[at]) * dot;
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) dsinks[head] = sum;
}

template <class T>
__global__ void weighted_bias_forward_kernel(int64_t rows, int64_t columns, const State<T>* factors,
                                             const T* bias, T* y) {
  for (int64_t i = grid_index(); i < rows * columns; i += grid_stride())
    y[i] = narrow<T>(wide(y[i]) + factors[i / columns] * wide(bias[i % columns]));
}

// A thread per column.
template <class T>
__global__ void weighted_bias_columns_kernel(int64_t rows, int64_t columns, const State<T>* factors,
                                             const T* dy, State<T>* dbias) {
  for (int64_t c = grid_index(); c < columns; c += grid_stride()) {
    State<T> sum = dbias[c];
    for (int64_t r = 0; r < rows; ++r) sum += factors[r] * wide(dy[r * columns + c]);
    dbias[c] = sum;
  }
}

// A block per row.
template <class T>
__global__ void weighted_bias_rows_kernel(int64_t columns, const T* bias, const T* dy, State<T>* dfactors) {
  const int64_t r = blockIdx.x;
  State<T> sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += blockDim.x)
    sum += wide(dy[r * columns + c]) * wide(bias[c]);
  sum = block_sum(sum);
  if (threadIdx.x == 0) dfactors[r] += sum;
}

}  // namespace

template <class T>
void scale(cudaStream_t stream, int64_t count, double factor, const T* x, T* y) {
  launch(stream, blocks_for(count), kThreads, 0, scale_kernel<T>, count, State<T>(factor), x, y);
}

template <class T>
void soft_cap(cudaStream_t stream, int64_t count, double cap, T* x) {
  launch(stream, blocks_for(count), kThreads, 0, soft_cap_kernel<T>, count, State<T>(cap), x);
}

template <class T>
void capped_loss_gradient(cudaStream_t stream, int64_t tokens, int64_t columns, int64_t used, int64_t first,
                          const int32_t* targets, const State<T>* maximum, const State<T>* sums, double scale,
                          double cap, T* logits, double* losses) {
  launch(stream, dim3(unsigned(tokens)), kThreads, 0, capped_loss_gradient_kernel<T>, tokens, columns, used,
         first, targets, maximum, sums, State<T>(scale), State<T>(cap), logits, losses);
}

template <class T>
void sink_forward(cudaStream_t stream, const AttentionShape& s, const T* sinks, T* out,
                  State<T>* log_sum_exp) {
  launch(stream, blocks_for(s.tokens() * s.heads * kWarp), kThreads, 0, sink_forward_kernel<T>, s, sinks, out,
         log_sum_exp);
}

template <class T>
void sink_backward(cudaStream_t stream, const AttentionShape& s, const T* sinks, const T* dout, const T* out,
                   const State<T>* log_sum_exp, State<T>* dsinks) {
  launch(stream, dim3(unsigned(s.heads)), kThreads, 0, sink_backward_kernel<T>, s, sinks, dout, out,
         log_sum_exp, dsinks);
}

template <class T>
void weighted_bias_forward(cudaStream_t stream, int64_t rows, int64_t columns, const State<T>* factors,
                           const T* bias, T* y) {
  launch(stream, blocks_for(rows * columns), kThreads, 0, weighted_bias_forward_kernel<T>, rows, columns,
         factors, bias, y);
}

template <class T>
void weighted_bias_backward(cudaStream_t stream, int64_t rows, int64_t columns, const State<T>* factors,
                            const T* bias, const T* dy, State<T>* dbias, State<T>* dfactors) {
  if (dbias != nullptr) {
    launch(stream, blocks_for(columns), kThreads, 0, weighted_bias_columns_kernel<T>, rows, columns, factors,
           dy, dbias);
  }
  if (dfactors != nullptr) {
    launch(stream, dim3(unsigned(rows)), kThreads, 0, weighted_bias_rows_kernel<T>, columns, bias, dy,
           dfactors);
  }
}

#define MPT_INSTANTIATE(T)                                                                                  \
  template void scale(cudaStream_t, int64_t, double, const T*, T*);                                         \
  template void soft_cap(cudaStream_t, int64_t, double, T*);                                                \
  template void capped_loss_gradient(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*,      \
                                     const State<T>*, const State<T>*, double, double, T*, double*);        \
  template void sink_forward(cudaStream_t, const AttentionShape&, const T*, T*, State<T>*);                 \
  template void sink_backward(cudaStream_t, const AttentionShape&, const T*, const T*, const T*,            \
                              const State<T>*, State<T>*);                                                  \
  template void weighted_bias_forward(cudaStream_t, int64_t, int64_t, const State<T>*, const T*, T*);       \
  template void weighted_bias_backward(cudaStream_t, int64_t, int64_t, const State<T>*, const T*, const T*, \
                                       State<T>*, State<T>*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
