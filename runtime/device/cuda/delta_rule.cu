// SPDX-License-Identifier: Apache-2.0

// The gated delta rule as runtime/device/cpu/delta_rule.cpp has it. A block does one head of one sequence,
// chunk after chunk, with its numbers in the room of the call.

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

constexpr int kDeltaTile = 4;
constexpr double kLengthEpsilon = 1e-6;

template <class S>
__device__ S delta_sigmoid(S x) {
  return S(1) / (S(1) + exp(-x));
}
template <class S>
__device__ S delta_softplus(S x) {
  return (x > S(0) ? x : S(0)) + log1p(exp(-fabs(x)));
}

// give(i, j, sum over k < inner of a(i, k) b(k, j)), a small square of them per thread. The block waits at
// the end.
template <class S, class A, class B, class Give>
__device__ void block_product(int64_t rows, int64_t columns, int64_t inner, A a, B b, Give give) {
  const int64_t wide_tiles = (columns + kDeltaTile - 1) / kDeltaTile;
  const int64_t tiles = (rows + kDeltaTile - 1) / kDeltaTile * wide_tiles;
  for (int64_t tile = threadIdx.x; tile < tiles; tile += blockDim.x) {
    const int64_t row = tile / wide_tiles * kDeltaTile, column = tile % wide_tiles * kDeltaTile;
    S sum[kDeltaTile][kDeltaTile] = {};
    for (int64_t k = 0; k < inner; ++k) {
      S left[kDeltaTile], right[kDeltaTile];
      for (int i = 0; i < kDeltaTile; ++i) {
        left[i] = row + i < rows ? a(row + i, k) : S(0);
        right[i] = column + i < columns ? b(k, column + i) : S(0);
      }
      for (int i = 0; i < kDeltaTile; ++i) {
        for (int j = 0; j < kDeltaTile; ++j) sum[i][j] += left[i] * right[j];
      }
    }
    for (int i = 0; i < kDeltaTile; ++i) {
      for (int j = 0; j < kDeltaTile; ++j) {
        if (row + i < rows && column + j < columns) give(row + i, column + j, sum[i][j]);
      }
    }
  }
  __syncthreads();
}

// give(i, sum over k < count of term(i, k)) for every row, a warp each. The block waits at the end.
template <class S, class Term, class Give>
__device__ void row_sums(int64_t rows, int64_t count, Term term, Give give) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = threadIdx.x / kWarp; i < rows; i += blockDim.x / kWarp) {
    S sum = 0;
    for (int64_t k = lane; k < count; k += kWarp) sum += term(i, k);
    sum = warp_reduce(sum, Sum());
    if (lane == 0) give(i, sum);
  }
  __syncthreads();
}

template <class T>
class DeltaBlock {
 public:
  using S = State<T>;

  __device__ DeltaBlock(const DeltaShape& s, const DeltaOperands<T>& in, S* room, bool backward)
      : s_(s),
        in_(in),
        r_(delta_room(s, room, backward, blockIdx.x)),
        begin_(int64_t(blockIdx.x) / s.heads * s.sequence),
        head_(int64_t(blockIdx.x) % s.heads),
        key_head_(head_ / (s.heads / s.key_heads)) {}

  __device__ int64_t state_size() const { return s_.key_dim * s_.head_dim; }
  __device__ void clear(S* data) const {
    for (int64_t i = threadIdx.x; i < state_size(); i += blockDim.x) data[i] = S(0);
    __syncthreads();
  }

  __device__ void open(int64_t chunk) {
    first_ = chunk * s_.chunk;
    n_ = s_.sequence - first_ < s_.chunk ? s_.sequence - first_ : s_.chunk;
    normalise(0, r_.q, S(1) / sqrt(S(s_.key_dim)));
    normalise(s_.keys(), r_.k, S(1));
    if (threadIdx.x == 0) {
      S total = 0;
      for (int64_t i = 0; i < n_; ++i) {
        r_.beta[i] = delta_sigmoid(wide(gates(i)[head_]));
        r_.log_decay[i] = total += rate() * delta_softplus(step(i));
      }
    }
    __syncthreads();
    const auto key = [&](int64_t k, int64_t j) { return r_.k[j * s_.key_dim + k]; };
    block_product<S>(
        n_, n_, s_.key_dim, [&](int64_t i, int64_t k) { return r_.q[i * s_.key_dim + k]; }, key,
        [&](int64_t i, int64_t j, S dot) {
          r_.qk[i * n_ + j] = dot;
          r_.decays[i * n_ + j] = i >= j ? exp(r_.log_decay[i] - r_.log_decay[j]) : S(0);
        });
    block_product<S>(
        n_, n_, s_.key_dim, [&](int64_t i, int64_t k) { return r_.k[i * s_.key_dim + k]; }, key,
        [&](int64_t i, int64_t j, S dot) { r_.kk[i * n_ + j] = dot; });
  }

  // The updates of the chunk's tokens by forward substitution, a thread per column.
  __device__ void solve(const S* state) {
    const int64_t width = s_.head_dim;
    block_product<S>(
        n_, width, s_.key_dim, [&](int64_t i, int64_t k) { return r_.k[i * s_.key_dim + k]; },
        [&](int64_t k, int64_t v) { return state[k * width + v]; },
        [&](int64_t i, int64_t v, S known) {
          const S error = wide(in_.qkv[value_at(i) + v]) - exp(r_.log_decay[i]) * known;
          r_.errors[i * width + v] = error;
          r_.updates[i * width + v] = r_.beta[i] * error;
        });
    for (int64_t v = threadIdx.x; v < width; v += blockDim.x) {
      for (int64_t i = 1; i < n_; ++i) {
        S sum = 0;
        for (int64_t j = 0; j < i; ++j) sum += between(i, j) * r_.updates[j * width + v];
        r_.updates[i * width + v] -= sum;
      }
    }
    __syncthreads();
  }

  __device__ void output(const S* state, T* out) {
    const int64_t width = s_.head_dim;
    block_product<S>(
        n_, width, s_.key_dim, [&](int64_t i, int64_t k) { return r_.q[i * s_.key_dim + k]; },
        [&](int64_t k, int64_t v) { return state[k * width + v]; },
        [&](int64_t i, int64_t v, S sum) { r_.errors[i * width + v] = exp(r_.log_decay[i]) * sum; });
    block_product<S>(
        n_, width, n_, [&](int64_t i, int64_t j) { return seen(i, j); },
        [&](int64_t j, int64_t v) { return r_.updates[j * width + v]; },
        [&](int64_t i, int64_t v, S sum) { out[out_at(i) + v] = narrow<T>(r_.errors[i * width + v] + sum); });
  }

  __device__ void advance(const S* state, S* next) {
    const int64_t width = s_.head_dim;
    block_product<S>(
        s_.key_dim, width, n_, [&](int64_t k, int64_t i) { return r_.k[i * s_.key_dim + k] * left(i); },
        [&](int64_t i, int64_t v) { return r_.updates[i * width + v]; },
        [&](int64_t k, int64_t v, S sum) { next[k * width + v] = whole() * state[k * width + v] + sum; });
  }

  __device__ void backward_chunk(const S* state, const T* dout, const DeltaResults<T>& to) {
    backward_solve(state, dout);
    backward_pairs(dout);
    backward_queries(state, dout);
    backward_keys(state);
    backward_state(dout);
    write(to);
  }

  __device__ S* states() const { return r_.states; }
  __device__ S* state() const { return r_.state; }
  __device__ void clear_sums() const {
    if (threadIdx.x == 0) *r_.d_decay = *r_.d_step_bias = S(0);
  }

 private:
  __device__ int64_t token(int64_t i) const { return begin_ + first_ + i; }
  __device__ int64_t value_at(int64_t i) const {
    return token(i) * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim;
  }
  __device__ int64_t out_at(int64_t i) const { return token(i) * s_.values() + head_ * s_.head_dim; }
  __device__ const T* gates(int64_t i) const { return in_.gates + token(i) * s_.row; }
  __device__ S rate() const { return -exp(wide(in_.decay[head_])); }
  __device__ S step(int64_t i) const { return wide(gates(i)[s_.heads + head_]) + wide(in_.step_bias[head_]); }
  __device__ S whole() const { return exp(r_.log_decay[n_ - 1]); }
  __device__ S left(int64_t i) const { return exp(r_.log_decay[n_ - 1] - r_.log_decay[i]); }
  __device__ S seen(int64_t i, int64_t j) const { return r_.qk[i * n_ + j] * r_.decays[i * n_ + j]; }
  __device__ S between(int64_t i, int64_t j) const {
    return r_.beta[i] * r_.kk[i * n_ + j] * r_.decays[i * n_ + j];
  }

  // Queries or keys, a warp per token.
  __device__ void normalise(int64_t column, S* to, S scale) {
    const int lane = int(threadIdx.x) % kWarp;
    for (int64_t i = threadIdx.x / kWarp; i < n_; i += blockDim.x / kWarp) {
      const T* const from = in_.qkv + token(i) * s_.columns() + column + key_head_ * s_.key_dim;
      S sum = 0;
      for (int64_t k = lane; k < s_.key_dim; k += kWarp) sum += wide(from[k]) * wide(from[k]);
      const S r = scale / sqrt(warp_reduce(sum, Sum()) + S(kLengthEpsilon));
      for (int64_t k = lane; k < s_.key_dim; k += kWarp) to[i * s_.key_dim + k] = wide(from[k]) * r;
    }
  }

  // The gradient of the triangular system's right side, and of decays through the next chunk's state.
  __device__ void backward_solve(const S* state, const T* dout) {
    const int64_t width = s_.head_dim;
    block_product<S>(
        n_, width, s_.key_dim, [&](int64_t i, int64_t k) { return r_.k[i * s_.key_dim + k] * left(i); },
        [&](int64_t k, int64_t v) { return r_.state[k * width + v]; },
        [&](int64_t i, int64_t v, S sum) { r_.d_updates[i * width + v] = sum; });
    row_sums<S>(
        n_, width,
        [&](int64_t i, int64_t v) { return r_.updates[i * width + v] * r_.d_updates[i * width + v]; },
        [&](int64_t i, S sum) { r_.d_log_decay[i] = -sum; });
    S sum = 0;
    for (int64_t i = threadIdx.x; i < state_size(); i += blockDim.x) sum += state[i] * r_.state[i] * whole();
    for (int64_t i = threadIdx.x; i < n_; i += blockDim.x) sum -= r_.d_log_decay[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) r_.d_log_decay[n_ - 1] += sum;
    __syncthreads();
    block_product<S>(
        n_, width, n_, [&](int64_t i, int64_t m) { return seen(m, i); },
        [&](int64_t m, int64_t v) { return wide(dout[out_at(m) + v]); },
        [&](int64_t i, int64_t v, S add) { r_.d_updates[i * width + v] += add; });
    for (int64_t v = threadIdx.x; v < width; v += blockDim.x) {
      for (int64_t i = n_ - 1; i-- > 0;) {
        S known = 0;
        for (int64_t m = i + 1; m < n_; ++m) known += between(m, i) * r_.d_updates[m * width + v];
        r_.d_updates[i * width + v] -= known;
      }
    }
    __syncthreads();
  }

  // Those of the products between tokens, and what follows for decays and betas.
  __device__ void backward_pairs(const T* dout) {
    const int64_t width = s_.head_dim;
    const auto update = [&](int64_t v, int64_t j) { return r_.updates[j * width + v]; };
    block_product<S>(
        n_, n_, width, [&](int64_t i, int64_t v) { return wide(dout[out_at(i) + v]); }, update,
        [&](int64_t i, int64_t j, S dot) { r_.d_qk[i * n_ + j] = dot * r_.decays[i * n_ + j]; });
    block_product<S>(
        n_, n_, width, [&](int64_t i, int64_t v) { return r_.d_updates[i * width + v]; }, update,
        [&](int64_t i, int64_t j, S dot) {
          r_.d_kk[i * n_ + j] = i > j ? -dot * r_.decays[i * n_ + j] : S(0);
        });
    const auto pair = [&](int64_t i, int64_t j) {
      const int64_t at = i * n_ + j;
      return r_.d_qk[at] * r_.qk[at] + r_.beta[i] * r_.d_kk[at] * r_.kk[at];
    };
    row_sums<S>(
        n_, n_, [&](int64_t i, int64_t j) { return pair(i, j) - pair(j, i); },
        [&](int64_t i, S sum) { r_.d_log_decay[i] += sum; });
    row_sums<S>(
        n_, n_, [&](int64_t i, int64_t j) { return r_.d_kk[i * n_ + j] * r_.kk[i * n_ + j]; },
        [&](int64_t i, S sum) { r_.d_beta[i] = sum; });
    row_sums<S>(
        n_, width,
        [&](int64_t i, int64_t v) { return r_.d_updates[i * width + v] * r_.errors[i * width + v]; },
        [&](int64_t i, S sum) { r_.d_beta[i] += sum; });
    for (int64_t at = threadIdx.x; at < n_ * n_; at += blockDim.x) r_.d_kk[at] *= r_.beta[at / n_];
    for (int64_t at = threadIdx.x; at < n_ * width; at += blockDim.x) r_.d_updates[at] *= r_.beta[at / width];
    __syncthreads();
  }

  __device__ void backward_queries(const S* state, const T* dout) {
    const int64_t width = s_.head_dim, keys = s_.key_dim;
    S* const d_q = r_.d_q + first_ * keys;
    block_product<S>(
        n_, keys, width, [&](int64_t i, int64_t v) { return wide(dout[out_at(i) + v]); },
        [&](int64_t v, int64_t k) { return state[k * width + v]; },
        [&](int64_t i, int64_t k, S sum) { d_q[i * keys + k] = exp(r_.log_decay[i]) * sum; });
    row_sums<S>(
        n_, keys, [&](int64_t i, int64_t k) { return d_q[i * keys + k] * r_.q[i * keys + k]; },
        [&](int64_t i, S sum) { r_.d_log_decay[i] += sum; });
    block_product<S>(
        n_, keys, n_, [&](int64_t i, int64_t j) { return r_.d_qk[i * n_ + j]; },
        [&](int64_t j, int64_t k) { return r_.k[j * keys + k]; },
        [&](int64_t i, int64_t k, S sum) { d_q[i * keys + k] += sum; });
  }

  __device__ void backward_keys(const S* state) {
    const int64_t width = s_.head_dim, keys = s_.key_dim;
    S* const d_k = r_.d_k + first_ * keys;
    block_product<S>(
        n_, keys, width, [&](int64_t i, int64_t v) { return -r_.d_updates[i * width + v]; },
        [&](int64_t v, int64_t k) { return state[k * width + v]; },
        [&](int64_t i, int64_t k, S sum) { d_k[i * keys + k] = exp(r_.log_decay[i]) * sum; });
    row_sums<S>(
        n_, keys, [&](int64_t i, int64_t k) { return d_k[i * keys + k] * r_.k[i * keys + k]; },
        [&](int64_t i, S sum) { r_.d_log_decay[i] += sum; });
    block_product<S>(
        n_, keys, width, [&](int64_t i, int64_t v) { return r_.updates[i * width + v]; },
        [&](int64_t v, int64_t k) { return r_.state[k * width + v]; },
        [&](int64_t i, int64_t k, S sum) { d_k[i * keys + k] += left(i) * sum; });
    block_product<S>(
        n_, keys, n_, [&](int64_t i, int64_t j) { return r_.d_qk[j * n_ + i]; },
        [&](int64_t j, int64_t k) { return r_.q[j * keys + k]; },
        [&](int64_t i, int64_t k, S sum) { d_k[i * keys + k] += sum; });
    block_product<S>(
        n_, keys, n_, [&](int64_t i, int64_t j) { return r_.d_kk[i * n_ + j] + r_.d_kk[j * n_ + i]; },
        [&](int64_t j, int64_t k) { return r_.k[j * keys + k]; },
        [&](int64_t i, int64_t k, S sum) { d_k[i * keys + k] += sum; });
  }

  // The gradient of the state before the chunk replaces that of the next chunk's.
  __device__ void backward_state(const T* dout) {
    const int64_t width = s_.head_dim, keys = s_.key_dim;
    block_product<S>(
        keys, width, 2 * n_,
        [&](int64_t k, int64_t m) {
          const int64_t i = m % n_;
          return (m < n_ ? r_.q[i * keys + k] : -r_.k[i * keys + k]) * exp(r_.log_decay[i]);
        },
        [&](int64_t m, int64_t v) {
          return m < n_ ? wide(dout[out_at(m) + v]) : r_.d_updates[(m - n_) * width + v];
        },
        [&](int64_t k, int64_t v, S sum) {
          r_.state[k * width + v] = whole() * r_.state[k * width + v] + sum;
        });
  }

  __device__ void write(const DeltaResults<T>& to) {
    for (int64_t at = threadIdx.x; at < n_ * s_.head_dim; at += blockDim.x)
      to.qkv[value_at(at / s_.head_dim) + at % s_.head_dim] = narrow<T>(r_.d_updates[at]);
    if (threadIdx.x == 0) {
      S later = 0;
      for (int64_t i = n_; i-- > 0;) {
        later += r_.d_log_decay[i];
        T* const gates_of = to.gates + token(i) * s_.row;
        const S beta = r_.beta[i], d_step = later * rate() * delta_sigmoid(step(i));
        gates_of[head_] = narrow<T>(r_.d_beta[i] * beta * (S(1) - beta));
        gates_of[s_.heads + head_] = narrow<T>(d_step);
        *r_.d_step_bias += d_step;
        *r_.d_decay += later * rate() * delta_softplus(step(i));
      }
    }
    __syncthreads();
  }

  const DeltaShape& s_;
  const DeltaOperands<T>& in_;
  const DeltaRoom<S> r_;
  const int64_t begin_, head_, key_head_;
  int64_t first_ = 0, n_ = 0;  // of the chunk
};

template <class T>
__global__ void delta_forward_kernel(DeltaShape s, DeltaOperands<T> in, T* out, State<T>* room) {
  DeltaBlock<T> block(s, in, room, false);
  block.clear(block.state());
  for (int64_t c = 0; c < s.chunks(); ++c) {
    block.open(c);
    block.solve(block.state());
    block.output(block.state(), out);
    block.advance(block.state(), block.state());
  }
}

template <class T>
__global__ void delta_backward_kernel(DeltaShape s, DeltaOperands<T> in, const T* dout, DeltaResults<T> to,
                                      State<T>* room) {
  DeltaBlock<T> block(s, in, room, true);
  const auto before = [&](int64_t chunk) { return block.states() + chunk * block.state_size(); };
  block.clear(before(0));
  for (int64_t c = 0; c + 1 < s.chunks(); ++c) {
    block.open(c);
    block.solve(before(c));
    block.advance(before(c), before(c + 1));
  }
  block.clear_sums();
  block.clear(block.state());
  for (int64_t c = s.chunks() - 1; c >= 0; --c) {
    block.open(c);
    block.solve(before(c));
    block.backward_chunk(before(c), dout, to);
  }
}

// A warp per token and key head, for the query or the key. It sums up the gradients of all heads that share
// it, and takes them through the division by the length.
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
  for (int64_t h = grid_index(); h < s.heads; h += grid_stride()) {
    for (int64_t b = 0; b < s.batch; ++b) {
      const DeltaRoom<State<T>> of = delta_room(s, room, true, b * s.heads + h);
      ddecay[h] += *of.d_decay;
      dstep_bias[h] += *of.d_step_bias;
    }
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
    launch(stream, blocks_for(s.heads), kThreads, 0, delta_heads_kernel<T>, s, o.room, to.decay,
           to.step_bias);
  });
}

}  // namespace mpt::runtime::cuda
