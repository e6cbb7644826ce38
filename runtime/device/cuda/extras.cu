// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

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

// A warp per token and head. The sink adds its exponential to the sum, and the output shrinks by the same
// ratio.
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
    __syncwarp();  // every lane has read the value before one writes it
    for (int64_t c = lane; c < values; c += kWarp)
      out[i * values + c] = narrow<T>(wide(out[i * values + c]) * factor);
    if (lane == 0) log_sum_exp[at] = sum;
  }
}

// A block per head; its threads share the tokens.
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

void run(StreamDevice& gpu, DataType type, const Scale& o) {
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.count, scale_kernel<T>, o.count, o.factor, o.x, o.y));
}

void run(StreamDevice& gpu, DataType type, const SoftCap& o) {
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.count, soft_cap_kernel<T>, o.count, o.cap, o.x));
}

void run(StreamDevice& gpu, DataType type, const SinkForward& o) {
  const AttentionShape& s = o.shape;
  MPT_DISPATCH(type, launch_each(gpu.stream(), s.tokens() * s.heads * kWarp, sink_forward_kernel<T>, s,
                                 o.sinks, o.out, o.log_sum_exp));
}

void run(StreamDevice& gpu, DataType type, const SinkBackward& o) {
  MPT_DISPATCH(type, launch(gpu.stream(), dim3(unsigned(o.shape.heads)), kThreads, 0, sink_backward_kernel<T>,
                            o.shape, o.sinks, o.dout, o.out, o.log_sum_exp, o.dsinks));
}

void run(StreamDevice& gpu, DataType type, const WeightedBiasBackward& o) {
  MPT_DISPATCH(type, {
    if (o.dbias != nullptr)
      launch_each(gpu.stream(), o.columns, weighted_bias_columns_kernel<T>, o.rows, o.columns, o.factors,
                  o.dy, o.dbias);
    if (o.dfactors != nullptr)
      launch(gpu.stream(), dim3(unsigned(o.rows)), kThreads, 0, weighted_bias_rows_kernel<T>, o.columns,
             o.bias, o.dy, o.dfactors);
  });
}

}  // namespace mpt::runtime::cuda
