// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

constexpr double kSqrtTwoOverPi = 0.7978845608028654;
constexpr double kGeluCubic = 0.044715;  // Hendrycks and Gimpel 2016 (arXiv:1606.08415)
constexpr double kSqrtHalf = 0.7071067811865476;
constexpr double kNormalDensity = 0.3989422804014327;  // 1 / sqrt(2 pi)

template <class W>
__device__ W activate(ActivationKind kind, W x) {
  switch (kind) {
    case ActivationKind::gelu_tanh:
      return W(0.5) * x * (W(1) + tanh(W(kSqrtTwoOverPi) * (x + W(kGeluCubic) * x * x * x)));
    case ActivationKind::gelu:
      return W(0.5) * x * (W(1) + erf(x * W(kSqrtHalf)));
    case ActivationKind::silu:
      return x / (W(1) + exp(-x));
    case ActivationKind::relu:
      return x > W(0) ? x : W(0);
    case ActivationKind::squared_relu:
      return x > W(0) ? x * x : W(0);
    default:
      break;  // refused when the plan is made
  }
  return x;
}

template <class W>
__device__ W slope(ActivationKind kind, W x) {
  switch (kind) {
    case ActivationKind::gelu_tanh: {
      const W t = tanh(W(kSqrtTwoOverPi) * (x + W(kGeluCubic) * x * x * x));
      return W(0.5) * (W(1) + t) +
             W(0.5) * x * (W(1) - t * t) * W(kSqrtTwoOverPi) * (W(1) + W(3 * kGeluCubic) * x * x);
    }
    case ActivationKind::gelu:
      return W(0.5) * (W(1) + erf(x * W(kSqrtHalf))) + x * W(kNormalDensity) * exp(W(-0.5) * x * x);
    case ActivationKind::silu: {
      const W s = logistic(x);
      return s * (W(1) + x * (W(1) - s));
    }
    case ActivationKind::relu:
      return x > W(0) ? W(1) : W(0);
    case ActivationKind::squared_relu:
      return x > W(0) ? W(2) * x : W(0);
    default:
      break;
  }
  return W(1);
}

template <class From, class To>
__global__ void copy_columns_kernel(int64_t rows, int64_t columns, const From* from, int64_t from_stride,
                                    To* to, int64_t to_stride) {
  for (int64_t i = grid_index(); i < rows * columns; i += grid_stride()) {
    const int64_t r = i / columns, c = i % columns;
    to[r * to_stride + c] = narrow<To>(State<To>(wide(from[r * from_stride + c])));
  }
}

template <class T, int N>
__global__ void residual_add_kernel(int64_t packs, const T* a, const T* b, T* y) {
  for (int64_t i = grid_index(); i < packs; i += grid_stride()) {
    const auto left = load<N>(a + i * N), right = load<N>(b + i * N);
    Pack<T, N> out;
    for (int n = 0; n < N; ++n) out.at[n] = narrow<T>(wide(left.at[n]) + wide(right.at[n]));
    store(y + i * N, out);
  }
}

template <class T>
__global__ void bias_forward_kernel(int64_t count, int64_t columns, const State<T>* factors, const T* bias,
                                    T* y) {
  for (int64_t i = grid_index(); i < count; i += grid_stride()) {
    const State<T> factor = factors == nullptr ? State<T>(1) : factors[i / columns];
    y[i] = narrow<T>(wide(y[i]) + factor * wide(bias[i % columns]));
  }
}

// gpt-oss's activation, as in cpu/activation.cpp.
constexpr double kLimitedSlope = 1.702;

template <class W>
struct Limited {
  W gate, up, sigmoid;
  bool gate_is_cut, up_is_cut;
  __device__ Limited(W x, W y, W limit) {
    gate_is_cut = x > limit;
    up_is_cut = y > limit || y < -limit;
    gate = gate_is_cut ? limit : x;
    up = y > limit ? limit : y < -limit ? -limit : y;
    sigmoid = logistic(W(kLimitedSlope) * gate);
  }
  __device__ W value() const { return gate * sigmoid * (up + W(1)); }
  __device__ W gate_slope() const {
    return gate_is_cut ? W(0) : (up + W(1)) * sigmoid * (W(1) + W(kLimitedSlope) * gate * (W(1) - sigmoid));
  }
  __device__ W up_slope() const { return up_is_cut ? W(0) : gate * sigmoid; }
};

template <class T>
__global__ void limited_forward_kernel(ActivationShape s, const T* x, T* y) {
  for (int64_t i = grid_index(); i < s.rows * s.columns; i += grid_stride()) {
    const int64_t at = i / s.columns * s.input_columns() + i % s.columns;
    y[i] = narrow<T>(Limited<State<T>>(wide(x[at]), wide(x[at + s.columns]), State<T>(s.limit)).value());
  }
}

template <class T>
__global__ void limited_backward_kernel(ActivationShape s, const T* dy, const T* x, T* dx) {
  for (int64_t i = grid_index(); i < s.rows * s.columns; i += grid_stride()) {
    const int64_t at = i / s.columns * s.input_columns() + i % s.columns;
    const Limited<State<T>> limited(wide(x[at]), wide(x[at + s.columns]), State<T>(s.limit));
    dx[at] = narrow<T>(wide(dy[i]) * limited.gate_slope());
    dx[at + s.columns] = narrow<T>(wide(dy[i]) * limited.up_slope());
  }
}

template <class T, int N>
__global__ void activation_forward_kernel(ActivationShape s, const T* x, T* y) {
  uint32_t most = 0;
  for (int64_t i = grid_index() * N; i < s.rows * s.columns; i += grid_stride() * N) {
    const int64_t at = i / s.columns * s.input_columns() + i % s.columns;
    const auto gate = load<N>(x + at);
    Pack<T, N> up{}, out;
    if (s.gated) up = load<N>(x + at + s.columns);
    for (int n = 0; n < N; ++n) {
      const State<T> value = activate(s.kind, wide(gate.at[n]));
      out.at[n] = narrow<T>(s.gated ? value * wide(up.at[n]) : value);
    }
    store(y + i, out);
    if (s.magnitude != nullptr) most = largest_magnitude(out, most);
  }
  raise_magnitude(s.magnitude, most);
}

template <class T, int N>
__global__ void activation_backward_kernel(ActivationShape s, const T* dy, const T* x, T* dx) {
  uint32_t most = 0;
  for (int64_t i = grid_index() * N; i < s.rows * s.columns; i += grid_stride() * N) {
    const int64_t at = i / s.columns * s.input_columns() + i % s.columns;
    const auto gradient = load<N>(dy + i), gate = load<N>(x + at);
    Pack<T, N> up{}, d_gate, d_up;
    if (s.gated) up = load<N>(x + at + s.columns);
    for (int n = 0; n < N; ++n) {
      const State<T> g = wide(gradient.at[n]), value = wide(gate.at[n]);
      const State<T> d = g * slope(s.kind, value);
      d_gate.at[n] = narrow<T>(s.gated ? d * wide(up.at[n]) : d);
      d_up.at[n] = narrow<T>(g * activate(s.kind, value));
    }
    store(dx + at, d_gate);
    if (s.gated) store(dx + at + s.columns, d_up);
    if (s.magnitude == nullptr) continue;
    most = largest_magnitude(d_gate, most);
    if (s.gated) most = largest_magnitude(d_up, most);
  }
  raise_magnitude(s.magnitude, most);
}

// AdamW's constants in the state's type, for the kernel.
template <class S>
struct AdamWFactors {
  S beta1, beta2, scale, step_size, second_scale, keep, epsilon;
};

template <class S, class T, int N>
__global__ void adamw_kernel(int64_t packs, AdamWFactors<S> o, S* gradient, S* parameter, S* first, S* second,
                             T* copy, bool zeroes) {
  for (int64_t i = grid_index(); i < packs; i += grid_stride()) {
    const auto g = load<N>(gradient + i * N);
    auto p = load<N>(parameter + i * N), m = load<N>(first + i * N), v = load<N>(second + i * N);
    for (int n = 0; n < N; ++n) {
      const S d = g.at[n] * o.scale;
      m.at[n] = o.beta1 * m.at[n] + (S(1) - o.beta1) * d;
      v.at[n] = o.beta2 * v.at[n] + (S(1) - o.beta2) * d * d;
      p.at[n] = o.keep * p.at[n] - o.step_size * m.at[n] / (sqrt(v.at[n] * o.second_scale) + o.epsilon);
    }
    store(parameter + i * N, p);
    store(first + i * N, m);
    store(second + i * N, v);
    if (zeroes) store(gradient + i * N, Pack<S, N>{});
    if (copy == nullptr) continue;
    Pack<T, N> narrowed;
    for (int n = 0; n < N; ++n) narrowed.at[n] = narrow<T>(State<T>(p.at[n]));
    store(copy + i * N, narrowed);
  }
}

// Loshchilov and Hutter 2019 (arXiv:1711.05101), algorithm 2. The state is S, the copy T.
template <class S, class T>
void adam_step(cudaStream_t stream, const AdamStep& o) {
  constexpr size_t kCopied = 16 / sizeof(S) * sizeof(T);
  const AdamW& w = o.options;
  const bool packed = in_packs<S>(o.count, o.gradient, o.parameter, o.first_moment, o.second_moment) &&
                      reinterpret_cast<uintptr_t>(o.copy.data) % kCopied == 0;
  const AdamWFactors<S> factors{S(w.beta1),
                                S(w.beta2),
                                S(w.gradient_scale),
                                S(w.learning_rate / (1.0 - std::pow(w.beta1, double(w.step)))),
                                S(1.0 / (1.0 - std::pow(w.beta2, double(w.step)))),
                                S(1.0 - w.learning_rate * w.weight_decay),
                                S(w.epsilon)};
  with_packs<S>(packed, [&](auto width) {
    launch_each(stream, o.count / width(), adamw_kernel<S, T, width()>, o.count / width(), factors,
                o.gradient, o.parameter, o.first_moment, o.second_moment, o.copy.data, o.zeroes);
  });
}

template <class From, class To>
void copy_columns(cudaStream_t stream, const CopyColumns& o) {
  launch_each(stream, o.rows * o.columns, copy_columns_kernel<From, To>, o.rows, o.columns, o.from,
              o.from_stride, o.to, o.to_stride);
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const CopyColumns& o) {
  const cudaStream_t stream = gpu.stream();
  const DataType to = o.to_type;
  if (type == to) return MPT_DISPATCH(type, copy_columns<T, T>(stream, o));
  if (type == DataType::float32)
    to == DataType::bfloat16 ? copy_columns<float, Bfloat16>(stream, o)
                             : copy_columns<float, Half>(stream, o);
  else
    type == DataType::bfloat16 ? copy_columns<Bfloat16, float>(stream, o)
                               : copy_columns<Half, float>(stream, o);
}

void run(StreamDevice& gpu, DataType type, const ResidualAdd& o) {
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(o.count, o.a, o.b, o.y), [&](auto width) {
      launch_each(gpu.stream(), o.count / width(), residual_add_kernel<T, width()>, o.count / width(), o.a,
                  o.b, o.y);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const BiasForward& o) {
  const int64_t count = o.rows * o.columns;
  MPT_DISPATCH(type, launch_each(gpu.stream(), count, bias_forward_kernel<T>, count, o.columns, o.factors,
                                 o.bias, o.y));
}

void run(StreamDevice& gpu, DataType type, const ActivationForward& o) {
  const ActivationShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  MPT_DISPATCH(type, {
    if (s.limit > 0.0) return launch_each(gpu.stream(), count, limited_forward_kernel<T>, s, o.x, o.y);
    with_packs<T>(in_packs<T>(s.columns, o.x, o.y), [&](auto width) {
      launch_each(gpu.stream(), count / width(), activation_forward_kernel<T, width()>, s, o.x, o.y);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const ActivationBackward& o) {
  const ActivationShape& s = o.shape;
  const int64_t count = s.rows * s.columns;
  MPT_DISPATCH(type, {
    if (s.limit > 0.0)
      return launch_each(gpu.stream(), count, limited_backward_kernel<T>, s, o.dy, o.x, o.dx);
    with_packs<T>(in_packs<T>(s.columns, o.dy, o.x, o.dx), [&](auto width) {
      launch_each(gpu.stream(), count / width(), activation_backward_kernel<T, width()>, s, o.dy, o.x, o.dx);
    });
  });
}

void run(StreamDevice& gpu, DataType state, const AdamStep& o) {
  const cudaStream_t stream = gpu.stream();
  if (state == DataType::float64) return adam_step<double, double>(stream, o);
  if (o.copy.data == nullptr) return adam_step<float, float>(stream, o);
  o.copy.type == DataType::bfloat16 ? adam_step<float, Bfloat16>(stream, o)
                                    : adam_step<float, Half>(stream, o);
}

}  // namespace mpt::runtime::cuda
