// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

// One channel of one token, before SiLU.
template <class T>
__device__ State<T> convolved(const ConvolutionShape& s, const T* x, const T* w, int64_t token, int64_t c) {
  const int64_t i = token % s.sequence, most = i + 1 < s.length ? i + 1 : s.length;
  State<T> sum = 0;
  for (int64_t back = 0; back < most; ++back)
    sum += wide(x[(token - back) * s.row + c]) * wide(w[c * s.length + s.length - 1 - back]);
  return sum;
}

// The gradient of the loss with respect to it.
template <class T>
__device__ State<T> d_convolved(const ConvolutionShape& s, const T* dy, const T* x, const T* w, int64_t token,
                                int64_t c) {
  using S = State<T>;
  const S sum = convolved(s, x, w, token, c), sigmoid = logistic(sum);
  return wide(dy[token * s.channels + c]) * sigmoid * (S(1) + sum * (S(1) - sigmoid));
}

template <class T>
__global__ void convolution_forward_kernel(ConvolutionShape s, const T* x, const T* w, T* y) {
  using S = State<T>;
  for (int64_t i = grid_index(); i < s.tokens() * s.channels; i += grid_stride()) {
    const S sum = convolved(s, x, w, i / s.channels, i % s.channels);
    y[i] = narrow<T>(sum / (S(1) + exp(-sum)));
  }
}

// A thread per element of the input, which contributed to its own token and the following ones.
template <class T>
__global__ void convolution_input_kernel(ConvolutionShape s, const T* dy, const T* x, const T* w, T* dx) {
  for (int64_t i = grid_index(); i < s.tokens() * s.channels; i += grid_stride()) {
    const int64_t token = i / s.channels, c = i % s.channels, behind = s.sequence - token % s.sequence;
    State<T> sum = 0;
    for (int64_t on = 0; on < (behind < s.length ? behind : s.length); ++on)
      sum += d_convolved(s, dy, x, w, token + on, c) * wide(w[c * s.length + s.length - 1 - on]);
    dx[token * s.row + c] = narrow<T>(sum);
  }
}

constexpr int kTokenLanes = kThreads / kWarp;

// A block per warp-width of channels, for one element of their weights; its warps share the tokens.
template <class T>
__global__ void convolution_weight_kernel(ConvolutionShape s, const T* dy, const T* x, const T* w,
                                          State<T>* dw) {
  __shared__ State<T> partial[kTokenLanes][kWarp];
  const int lane = int(threadIdx.x) % kWarp, share = int(threadIdx.x) / kWarp;
  const int64_t c = int64_t(blockIdx.x) * kWarp + lane, of = blockIdx.y, back = s.length - 1 - of;
  State<T> sum = 0;
  for (int64_t t = share; c < s.channels && t < s.tokens(); t += kTokenLanes)
    if (t % s.sequence >= back) sum += d_convolved(s, dy, x, w, t, c) * wide(x[(t - back) * s.row + c]);
  partial[share][lane] = sum;
  __syncthreads();
  if (share > 0 || c >= s.channels) return;
  for (int other = 1; other < kTokenLanes; ++other) sum += partial[other][lane];
  dw[c * s.length + of] += sum;
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const ConvolutionForward& o) {
  const ConvolutionShape& s = o.shape;
  MPT_DISPATCH(type, launch_each(gpu.stream(), s.tokens() * s.channels, convolution_forward_kernel<T>, s, o.x,
                                 o.w, o.y));
}

void run(StreamDevice& gpu, DataType type, const ConvolutionBackward& o) {
  const ConvolutionShape& s = o.shape;
  const dim3 blocks(unsigned(ceil_div(s.channels, kWarp)), unsigned(s.length));
  MPT_DISPATCH(type, {
    launch_each(gpu.stream(), s.tokens() * s.channels, convolution_input_kernel<T>, s, o.dy, o.x, o.w, o.dx);
    launch(gpu.stream(), blocks, kThreads, 0, convolution_weight_kernel<T>, s, o.dy, o.x, o.w, o.dw);
  });
}

}  // namespace mpt::runtime::cuda
