// SPDX-License-Identifier: Apache-2.0

// The gated delta rule, as in runtime/device/cpu/delta_rule.cpp. A block processes one head of one sequence,
// token after token. Its states are in the call's scratch memory. Each thread has whole columns of a state,
// so only sums over rows synchronize.

#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

template <class T>
struct DeltaOperands {
  const T *qkv, *gates, *decay, *step_bias;
};
template <class T>
struct DeltaResults {
  T *qkv, *gates;
  State<T>*decay, *step_bias;
};

constexpr double kLengthEpsilon = 1e-6;

template <class S>
__device__ S delta_softplus(S x) {
  return (x > S(0) ? x : S(0)) + log1p(exp(-fabs(x)));
}

template <class T>
class DeltaBlock {
 public:
  using S = State<T>;

  __device__ DeltaBlock(const DeltaShape& s, const DeltaOperands<T>& in, S* room, bool backward)
      : s_(s),
        in_(in),
        r_(delta_room(s, room, backward, blockIdx.x)),
        size_(s.of_head().state()),
        begin_(int64_t(blockIdx.x) / s.heads * s.sequence),
        head_(int64_t(blockIdx.x) % s.heads) {}

  __device__ void forward(T* out) {
    clear(r_.state);
    for (int64_t c = 0; c < s_.chunks(); ++c) {
      open(c);
      for (int64_t i = 0; i < n_; ++i) {
        advance(i, r_.state, r_.state);
        columns([&](int64_t v) { out[out_at(i) + v] = narrow<T>(along(r_.q, i, r_.state, v)); });
      }
    }
  }

  __device__ void backward(const T* dout, const DeltaResults<T>& to) {
    clear(r_.states);
    for (int64_t c = 0; c + 1 < s_.chunks(); ++c) {
      S* const next = r_.states + (c + 1) * size_;
      open(c);
      for (int64_t i = 0; i < n_; ++i) advance(i, i == 0 ? next - size_ : next, next);
    }
    if (threadIdx.x == 0) *r_.d_decay = *r_.d_step_bias = S(0);
    clear(r_.state);
    for (int64_t c = s_.chunks() - 1; c >= 0; --c) {
      open(c);
      const auto before = [&](int64_t i) { return i == 0 ? r_.states + c * size_ : r_.inside + i * size_; };
      for (int64_t i = 0; i + 1 < n_; ++i) advance(i, before(i), r_.inside + (i + 1) * size_);
      for (int64_t i = n_ - 1; i >= 0; --i) backward_token(i, before(i), dout, to);
    }
  }

 private:
  template <class Body>
  __device__ void columns(Body body) const {
    for (int64_t v = threadIdx.x; v < s_.head_dim; v += blockDim.x) body(v);
  }
  __device__ void clear(S* state) const {
    columns([&](int64_t v) {
      for (int64_t k = 0; k < s_.key_dim; ++k) state[k * s_.head_dim + v] = S(0);
    });
  }

  __device__ int64_t token(int64_t i) const { return begin_ + first_ + i; }
  __device__ int64_t value_at(int64_t i) const {
    return token(i) * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim;
  }
  __device__ int64_t out_at(int64_t i) const { return token(i) * s_.values() + head_ * s_.head_dim; }
  __device__ S rate() const { return -exp(wide(in_.decay[head_])); }
  __device__ S beta(int64_t i) const { return logistic(wide(in_.gates[token(i) * s_.row + head_])); }
  __device__ S step(int64_t i) const {
    return wide(in_.gates[token(i) * s_.row + s_.heads + head_]) + wide(in_.step_bias[head_]);
  }
  __device__ S factor(int64_t i) const { return exp(rate() * delta_softplus(step(i))); }

  // Loads queries and keys of the chunk's tokens.
  __device__ void open(int64_t chunk) {
    __syncthreads();  // the last chunk's have been read
    first_ = chunk * s_.chunk;
    n_ = s_.sequence - first_ < s_.chunk ? s_.sequence - first_ : s_.chunk;
    normalise(0, r_.q, S(1) / sqrt(S(s_.key_dim)));
    normalise(s_.keys(), r_.k, S(1));
    __syncthreads();
  }
  // A warp per token.
  __device__ void normalise(int64_t column, S* to, S scale) {
    const int64_t key_head = head_ / (s_.heads / s_.key_heads);
    const int lane = int(threadIdx.x) % kWarp;
    for (int64_t i = threadIdx.x / kWarp; i < n_; i += blockDim.x / kWarp) {
      const T* const from = in_.qkv + token(i) * s_.columns() + column + key_head * s_.key_dim;
      S sum = 0;
      for (int64_t k = lane; k < s_.key_dim; k += kWarp) sum += wide(from[k]) * wide(from[k]);
      const S r = scale / sqrt(warp_reduce(sum, Sum()) + S(kLengthEpsilon));
      for (int64_t k = lane; k < s_.key_dim; k += kWarp) to[i * s_.key_dim + k] = wide(from[k]) * r;
    }
  }

  // A column of a state times a token's query or key.
  __device__ S along(const S* rows, int64_t i, const S* state, int64_t v) const {
    S sum = 0;
    for (int64_t k = 0; k < s_.key_dim; ++k) sum += rows[i * s_.key_dim + k] * state[k * s_.head_dim + v];
    return sum;
  }
  // A value minus the prediction for its key from the decayed state.
  __device__ S error(int64_t i, const S* state, int64_t v) const {
    return wide(in_.qkv[value_at(i) + v]) - factor(i) * along(r_.k, i, state, v);
  }
  // `to` may be `from`.
  __device__ void advance(int64_t i, const S* from, S* to) const {
    columns([&](int64_t v) {
      const S update = beta(i) * error(i, from, v), kept = factor(i);
      for (int64_t k = 0; k < s_.key_dim; ++k) {
        const int64_t at = k * s_.head_dim + v;
        to[at] = kept * from[at] + r_.k[i * s_.key_dim + k] * update;
      }
    });
  }

  // `state` is the state before the token. The gradient of the state after the token becomes that of the
  // state before it.
  __device__ void backward_token(int64_t i, const S* state, const T* dout, const DeltaResults<T>& to) {
    const S kept = factor(i), strength = beta(i);
    const S* const q = r_.q + i * s_.key_dim;
    const S* const key = r_.k + i * s_.key_dim;
    S d_beta = 0, d_factor = 0;
    columns([&](int64_t v) {
      const S wrong = error(i, state, v), d = wide(dout[out_at(i) + v]);
      for (int64_t k = 0; k < s_.key_dim; ++k) r_.state[k * s_.head_dim + v] += q[k] * d;
      const S d_update = along(r_.k, i, r_.state, v);
      d_beta += d_update * wrong;
      r_.update[v] = strength * wrong;
      r_.d_error[v] = strength * d_update;
      to.qkv[value_at(i) + v] = narrow<T>(strength * d_update);
    });
    d_beta = block_sum(d_beta);
    const int lane = int(threadIdx.x) % kWarp;
    for (int64_t k = threadIdx.x / kWarp; k < s_.key_dim; k += blockDim.x / kWarp) {
      S d_q = 0, d_k = 0;
      for (int64_t v = lane; v < s_.head_dim; v += kWarp) {
        S& d_state = r_.state[k * s_.head_dim + v];
        const S old = state[k * s_.head_dim + v];
        d_q += (kept * old + key[k] * r_.update[v]) * wide(dout[out_at(i) + v]);
        d_k += d_state * r_.update[v] - kept * old * r_.d_error[v];
        const S d_decayed = d_state - key[k] * r_.d_error[v];
        d_factor += d_decayed * old;
        d_state = kept * d_decayed;
      }
      d_q = warp_reduce(d_q, Sum());
      d_k = warp_reduce(d_k, Sum());
      if (lane == 0) r_.d_q[(first_ + i) * s_.key_dim + k] = d_q;
      if (lane == 0) r_.d_k[(first_ + i) * s_.key_dim + k] = d_k;
    }
    const S d_log = block_sum(d_factor) * kept;
    if (threadIdx.x == 0) give_gates(i, d_beta * strength * (S(1) - strength), d_log, to);
  }
  __device__ void give_gates(int64_t i, S d_gate, S d_log, const DeltaResults<T>& to) {
    T* const gates = to.gates + token(i) * s_.row;
    const S d_step = d_log * rate() * logistic(step(i));
    gates[head_] = narrow<T>(d_gate);
    gates[s_.heads + head_] = narrow<T>(d_step);
    *r_.d_step_bias += d_step;
    *r_.d_decay += d_log * rate() * delta_softplus(step(i));
  }

  const DeltaShape& s_;
  const DeltaOperands<T>& in_;
  const DeltaRoom<S> r_;
  const int64_t size_, begin_, head_;
  int64_t first_ = 0, n_ = 0;  // of the chunk
};

template <class T>
__global__ void delta_forward_kernel(DeltaShape s, DeltaOperands<T> in, T* out, State<T>* room) {
  DeltaBlock<T>(s, in, room, false).forward(out);
}

template <class T>
__global__ void delta_backward_kernel(DeltaShape s, DeltaOperands<T> in, const T* dout, DeltaResults<T> to,
                                      State<T>* room) {
  DeltaBlock<T>(s, in, room, true).backward(dout, to);
}

// A warp per token and key head, for the query or the key. It sums the gradients of all heads that share it,
// and passes them through the division by the length.
template <class T>
__global__ void delta_keys_kernel(DeltaShape s, DeltaOperands<T> in, State<T>* room, T* dqkv) {
  using S = State<T>;
  const int lane = int(threadIdx.x) % kWarp;
  const bool is_key = blockIdx.y == 1;
  const int64_t shared = s.heads / s.key_heads;
  const S scale = is_key ? S(1) : S(1) / sqrt(S(s.key_dim));
  for (int64_t i = grid_index() / kWarp; i < s.tokens() * s.key_heads; i += grid_stride() / kWarp) {
    const int64_t token = i / s.key_heads, key_head = i % s.key_heads, sequence = token / s.sequence;
    const int64_t at = token * s.columns() + (is_key ? s.keys() : 0) + key_head * s.key_dim;
    const auto given = [&](int64_t k) {
      S sum = 0;
      for (int64_t h = 0; h < shared; ++h) {
        const DeltaRoom<S> of = delta_room(s, room, true, sequence * s.heads + key_head * shared + h);
        sum += (is_key ? of.d_k : of.d_q)[token % s.sequence * s.key_dim + k];
      }
      return sum;
    };
    S squares = 0, dot = 0;
    for (int64_t k = lane; k < s.key_dim; k += kWarp) {
      const S x = wide(in.qkv[at + k]);
      squares += x * x;
      dot += x * given(k);
    }
    const S r = S(1) / sqrt(warp_reduce(squares, Sum()) + S(kLengthEpsilon));
    const S along = warp_reduce(dot, Sum()) * r * r;
    for (int64_t k = lane; k < s.key_dim; k += kWarp)
      dqkv[at + k] = narrow<T>(scale * r * (given(k) - wide(in.qkv[at + k]) * along));
  }
}

template <class T>
__global__ void delta_heads_kernel(DeltaShape s, State<T>* room, State<T>* ddecay, State<T>* dstep_bias) {
  for (int64_t h = grid_index(); h < s.heads; h += grid_stride())
    for (int64_t b = 0; b < s.batch; ++b) {
      const DeltaRoom<State<T>> of = delta_room(s, room, true, b * s.heads + h);
      ddecay[h] += *of.d_decay;
      dstep_bias[h] += *of.d_step_bias;
    }
}

template <class T>
DeltaOperands<T> operands_of(const DeltaInputs& in) {
  return {as<T>(in.qkv), as<T>(in.gates), as<T>(in.decay), as<T>(in.step_bias)};
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const DeltaForward& o) {
  const dim3 blocks(unsigned(o.shape.batch * o.shape.heads));
  MPT_DISPATCH(type, launch(gpu.stream(), blocks, kThreads, 0, delta_forward_kernel<T>, o.shape,
                            operands_of<T>(o.in), o.out, o.room));
}

void run(StreamDevice& gpu, DataType type, const DeltaBackward& o) {
  const DeltaShape& s = o.shape;
  const cudaStream_t stream = gpu.stream();
  dim3 blocks = blocks_for(s.tokens() * s.key_heads, kThreads / kWarp);
  blocks.y = 2;
  MPT_DISPATCH(type, {
    const auto in = operands_of<T>(o.in);
    const DeltaResults<T> to{as<T>(o.d.qkv), as<T>(o.d.gates), as<S>(o.d.decay), as<S>(o.d.step_bias)};
    launch(stream, dim3(unsigned(s.batch * s.heads)), kThreads, 0, delta_backward_kernel<T>, s, in, o.dout,
           to, o.room);
    launch(stream, blocks, kThreads, 0, delta_keys_kernel<T>, s, in, o.room, to.qkv);
    launch_each(stream, s.heads, delta_heads_kernel<T>, s, o.room, to.decay, to.step_bias);
  });
}

}  // namespace mpt::runtime::cuda
