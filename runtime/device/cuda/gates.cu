// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

// For the head of this warp.
template <class T>
__device__ State<T> reciprocal_rms(const GatedNormShape& s, const T* x) {
  using S = State<T>;
  S sum = 0;
  for (int64_t c = int(threadIdx.x) % kWarp; c < s.head_dim; c += kWarp) sum += wide(x[c]) * wide(x[c]);
  return S(1) / sqrt(warp_reduce(sum, Sum()) / S(s.head_dim) + S(s.epsilon));
}

// A warp per head of a token.
template <class T>
__global__ void gated_norm_forward_kernel(GatedNormShape s, const T* x, const T* gate, const T* scale, T* y) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < s.tokens * s.heads; i += grid_stride() / kWarp) {
    const T* const in = x + i * s.head_dim;
    const T* const z = gate + i / s.heads * s.row + i % s.heads * s.head_dim;
    const State<T> r = reciprocal_rms(s, in);
    for (int64_t c = lane; c < s.head_dim; c += kWarp) {
      const State<T> g = wide(z[c]);
      y[i * s.head_dim + c] = narrow<T>(wide(in[c]) * r * wide(scale[c]) * g * logistic(g));
    }
  }
}

template <class T>
__global__ void gated_norm_backward_kernel(GatedNormShape s, const T* dy, const T* x, const T* gate,
                                           const T* scale, T* dx, T* dgate) {
  using S = State<T>;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < s.tokens * s.heads; i += grid_stride() / kWarp) {
    const int64_t first = i * s.head_dim, z = i / s.heads * s.row + i % s.heads * s.head_dim;
    const S r = reciprocal_rms(s, x + first);
    S dot = 0;
    for (int64_t c = lane; c < s.head_dim; c += kWarp) {
      const S g = wide(gate[z + c]), sigmoid = logistic(g), normed = wide(x[first + c]) * r;
      const S d = wide(dy[first + c]) * wide(scale[c]);
      dot += d * g * sigmoid * normed;
      dgate[z + c] = narrow<T>(d * normed * sigmoid * (S(1) + g * (S(1) - sigmoid)));
    }
    const S mean = warp_reduce(dot, Sum()) / S(s.head_dim);
    for (int64_t c = lane; c < s.head_dim; c += kWarp) {
      const S g = wide(gate[z + c]), d = wide(dy[first + c]) * wide(scale[c]) * g * logistic(g);
      dx[first + c] = narrow<T>(r * (d - wide(x[first + c]) * r * mean));
    }
  }
}

constexpr int kScaleBlocks = 64;
constexpr int kWarpsOfBlock = kThreads / kWarp;

// Blocks share the heads of all tokens, and a block's warps share the block's heads. Each warp sums
// separately, in [blocks][warps][head_dim].
template <class T>
__global__ void gated_norm_partial_kernel(GatedNormShape s, const T* dy, const T* x, const T* gate,
                                          State<T>* partial) {
  using S = State<T>;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t warp = grid_index() / kWarp, warps = grid_stride() / kWarp;
  S* const own = partial + warp * s.head_dim;
  for (int64_t c = lane; c < s.head_dim; c += kWarp) own[c] = S(0);
  for (int64_t i = warp; i < s.tokens * s.heads; i += warps) {
    const int64_t first = i * s.head_dim, z = i / s.heads * s.row + i % s.heads * s.head_dim;
    const S r = reciprocal_rms(s, x + first);
    for (int64_t c = lane; c < s.head_dim; c += kWarp) {
      const S g = wide(gate[z + c]);
      own[c] += wide(dy[first + c]) * wide(x[first + c]) * r * g * logistic(g);
    }
  }
}

template <class T>
__global__ void gated_norm_scale_kernel(GatedNormShape s, const State<T>* partial, State<T>* dscale) {
  for (int64_t c = grid_index(); c < s.head_dim; c += grid_stride()) {
    State<T> sum = dscale[c];
    for (int64_t part = 0; part < kScaleBlocks * kWarpsOfBlock; ++part) sum += partial[part * s.head_dim + c];
    dscale[c] = sum;
  }
}

template <class T>
__global__ void gate_forward_kernel(GateShape s, const T* x, const T* gate, T* y) {
  const int64_t width = s.width();
  for (int64_t i = grid_index(); i < s.rows * s.columns; i += grid_stride())
    y[i] = narrow<T>(wide(x[i]) * logistic(wide(gate[i / width])));
}

// A warp per gate.
template <class T>
__global__ void gate_backward_kernel(GateShape s, const T* dy, const T* x, const T* gate, T* dx, T* dgate) {
  using S = State<T>;
  const int lane = int(threadIdx.x) % kWarp;
  const int64_t width = s.width();
  for (int64_t i = grid_index() / kWarp; i < s.rows * s.gates; i += grid_stride() / kWarp) {
    const S sigmoid = logistic(wide(gate[i]));
    S sum = 0;
    for (int64_t at = i * width + lane; at < (i + 1) * width; at += kWarp) {
      const S d = wide(dy[at]);
      sum += d * wide(x[at]);
      dx[at] = narrow<T>(d * sigmoid);
    }
    sum = warp_reduce(sum, Sum());
    if (lane == 0) dgate[i] = narrow<T>(sum * sigmoid * (S(1) - sigmoid));
  }
}

// A thread per gate, for gates of single elements.
template <class T>
__global__ void single_gate_backward_kernel(int64_t count, const T* dy, const T* x, const T* gate, T* dx,
                                            T* dgate) {
  using S = State<T>;
  for (int64_t i = grid_index(); i < count; i += grid_stride()) {
    const S sigmoid = logistic(wide(gate[i])), d = wide(dy[i]);
    dgate[i] = narrow<T>(d * wide(x[i]) * sigmoid * (S(1) - sigmoid));
    dx[i] = narrow<T>(d * sigmoid);
  }
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const GatedNormForward& o) {
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.shape.tokens * o.shape.heads * kWarp,
                                 gated_norm_forward_kernel<T>, o.shape, o.x, o.gate, o.scale, o.y));
}

void run(StreamDevice& gpu, DataType type, const GatedNormBackward& o) {
  const GatedNormShape& s = o.shape;
  const cudaStream_t stream = gpu.stream();
  const Scratch sums(gpu.streams(), kScaleBlocks * kWarpsOfBlock * s.head_dim * int64_t(sizeof(double)));
  MPT_DISPATCH(type, {
    launch(stream, dim3(kScaleBlocks), kThreads, 0, gated_norm_partial_kernel<T>, s, o.dy, o.x, o.gate,
           sums.data());
    launch_each(stream, s.head_dim, gated_norm_scale_kernel<T>, s, sums.data(), o.dscale);
    launch_each(stream, s.tokens * s.heads * kWarp, gated_norm_backward_kernel<T>, s, o.dy, o.x, o.gate,
                o.scale, o.dx, o.dgate);
  });
}

void run(StreamDevice& gpu, DataType type, const GateForward& o) {
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.shape.rows * o.shape.columns, gate_forward_kernel<T>,
                                 o.shape, o.x, o.gate, o.y));
}

void run(StreamDevice& gpu, DataType type, const GateBackward& o) {
  const int64_t count = o.shape.rows * o.shape.gates;
  MPT_DISPATCH(type, {
    if (o.shape.width() == 1)
      return launch_each(gpu.stream(), count, single_gate_backward_kernel<T>, count, o.dy, o.x, o.gate, o.dx,
                         o.dgate);
    launch_each(gpu.stream(), count * kWarp, gate_backward_kernel<T>, o.shape, o.dy, o.x, o.gate, o.dx,
                o.dgate);
  });
}

}  // namespace mpt::runtime::cuda
