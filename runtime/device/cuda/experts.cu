// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

// The best of `count` experts from `first` on that follow `last` in the order of choice (larger first, then
// lower number); -1 if none follows.
template <class S>
__device__ int64_t best_behind(const S* p, int64_t first, int64_t count, int64_t last) {
  int64_t best = -1;
  for (int64_t e = first; e < first + count; ++e) {
    const bool behind = last < 0 || p[e] < p[last] || (p[e] == p[last] && e > last);
    if (behind && (best < 0 || p[e] > p[best])) best = e;
  }
  return best;
}

// The token's chosen groups, one bit for each.
template <class S>
__device__ uint64_t groups_of_token(const RouterShape& s, const S* p) {
  if (!s.limited()) return ~uint64_t{0};
  uint64_t chosen = 0;
  for (int64_t i = 0; i < s.groups_of_token; ++i) {
    int64_t best_group = -1;
    S best_sum = 0;
    for (int64_t g = 0; g < s.groups; ++g) {
      if (chosen >> g & 1) continue;
      S sum = 0;
      int64_t last = -1;
      for (int64_t j = 0; j < s.best_of_group(); ++j) {
        last = best_behind(p, g * s.group_size(), s.group_size(), last);
        sum += p[last];
      }
      if (best_group < 0 || sum > best_sum) {
        best_group = g;
        best_sum = sum;
      }
    }
    chosen |= uint64_t{1} << best_group;
  }
  return chosen;
}

template <class T>
__device__ void give_scores(const RouterShape& s, const T* logit, State<T>* p) {
  if (s.scores == RouterScores::sigmoid) {
    for (int64_t e = 0; e < s.experts; ++e) p[e] = logistic(wide(logit[e]));
    return;
  }
  State<T> maximum = wide(logit[0]), sum = 0;
  for (int64_t e = 1; e < s.experts; ++e) maximum = max(maximum, wide(logit[e]));
  for (int64_t e = 0; e < s.experts; ++e) sum += p[e] = exp(wide(logit[e]) - maximum);
  for (int64_t e = 0; e < s.experts; ++e) p[e] /= sum;
}

// One thread per token is enough: routing over the few experts is cheap compared with the rows' products.
template <class T>
__global__ void router_forward_kernel(RouterShape s, const T* logits, State<T>* probabilities,
                                      int32_t* chosen, State<T>* weights, const T* bias) {
  using S = State<T>;
  for (int64_t t = grid_index(); t < s.tokens; t += grid_stride()) {
    const T* const logit = logits + t * s.experts;
    S* const p = probabilities + t * s.experts;
    give_scores(s, logit, p);
    // Experts are chosen by sums with the bias. These replace the probabilities until the choice is made.
    for (int64_t e = 0; e < s.experts && bias != nullptr; ++e) p[e] += wide(bias[e]);
    const uint64_t groups = groups_of_token(s, p);
    int64_t last = -1;
    for (int64_t j = 0; j < s.top; ++j) {
      int64_t best = -1;
      for (int64_t g = 0; g < s.groups; ++g) {
        if (!(groups >> g & 1)) continue;
        const int64_t here = best_behind(p, g * s.group_size(), s.group_size(), last);
        if (here >= 0 && (best < 0 || p[here] > p[best])) best = here;
      }
      chosen[t * s.top + j] = int32_t(best);
      last = best;
    }
    if (bias != nullptr) give_scores(s, logit, p);
    S of_chosen = s.normalized ? S(0) : S(1);
    for (int64_t j = 0; j < s.top && s.normalized; ++j) of_chosen += p[chosen[t * s.top + j]];
    for (int64_t j = 0; j < s.top; ++j)
      weights[t * s.top + j] = p[chosen[t * s.top + j]] / of_chosen * S(s.scale);
  }
}

// Like router_backward in cpu/experts.cpp.
template <class T>
__global__ void router_backward_kernel(RouterShape shape, const State<T>* probabilities,
                                       const int32_t* chosen, const State<T>* dweights,
                                       const State<T>* balance, T* dlogits) {
  using S = State<T>;
  const int64_t tokens = shape.tokens, experts = shape.experts, top = shape.top;
  for (int64_t t = grid_index(); t < tokens; t += grid_stride()) {
    const S* const p = probabilities + t * experts;
    const bool sigmoid = shape.scores == RouterScores::sigmoid, balanced = balance != nullptr;
    const S* const b = balanced ? balance + (shape.first + t) / shape.sequence * experts : nullptr;
    S all = 1, of_balance = 0;
    if (sigmoid && balanced) {
      all = 0;
      for (int64_t e = 0; e < experts; ++e) all += p[e];
      for (int64_t e = 0; e < experts; ++e) of_balance += p[e] * b[e] / all;
    }
    S sum = shape.normalized ? S(0) : S(1), mean = 0;
    for (int64_t j = 0; j < top && shape.normalized; ++j) {
      const S of_chosen = p[chosen[t * top + j]];
      sum += of_chosen;
      mean += of_chosen * dweights[t * top + j];
    }
    const auto gradient = [&](int64_t e) {
      S d = balanced ? (b[e] - of_balance) / all : S(0);
      for (int64_t j = 0; j < top; ++j)
        if (chosen[t * top + j] == e) d += S(shape.scale) * (dweights[t * top + j] - mean / sum) / sum;
      return d;
    };
    for (int64_t e = 0; e < experts && sigmoid; ++e)
      dlogits[t * experts + e] = narrow<T>(p[e] * (S(1) - p[e]) * gradient(e));
    if (sigmoid) continue;
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

void run(StreamDevice& gpu, DataType type, const RouterForward& o) {
  const RouterShape& s = o.shape;
  const Scratch numbers(gpu.streams(), s.tokens * s.top * int64_t(sizeof(int32_t)));
  MPT_DISPATCH(type, launch_each(gpu.stream(), s.tokens, router_forward_kernel<T>, s, o.logits,
                                 o.probabilities, numbers.data(), o.weights, o.bias));
  gpu.copy(o.chosen, numbers.data(), numbers.bytes());
}

void run(StreamDevice& gpu, DataType type, const RouterBackward& o) {
  const RouterShape& s = o.shape;
  const StreamDevice::Numbers chosen(gpu, o.chosen, s.tokens * s.top);
  MPT_DISPATCH(type, launch_each(gpu.stream(), s.tokens, router_backward_kernel<T>, s, o.probabilities,
                                 chosen.data(), o.dweights, o.balance, o.dlogits));
}

void run(StreamDevice& gpu, DataType type, const GatherRows& o) {
  const StreamDevice::Numbers rows(gpu, o.rows, o.count);
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.count * o.columns, gather_rows_kernel<T>, o.count, o.columns,
                                 rows.data(), o.x, o.y));
}

void run(StreamDevice& gpu, DataType type, const SumRows& o) {
  const StreamDevice::Numbers rows(gpu, o.rows, o.tokens * o.top);
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.tokens * o.columns, sum_rows_kernel<T>, o.tokens, o.top,
                                 o.columns, rows.data(), o.x, o.y));
}

void run(StreamDevice& gpu, DataType type, const ScaleRows& o) {
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.rows * o.columns, scale_rows_kernel<T>, o.rows, o.columns,
                                 o.factors, o.x, o.y));
}

void run(StreamDevice& gpu, DataType type, const RowDots& o) {
  MPT_DISPATCH(type, launch(gpu.stream(), dim3(unsigned(o.rows)), kThreads, 0, row_dots_kernel<T>, o.columns,
                            o.a, o.b, o.dots));
}

}  // namespace mpt::runtime::cuda
