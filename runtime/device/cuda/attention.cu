// SPDX-License-Identifier: Apache-2.0

// Attention that never stores the matrix of scores (Dao et al. 2022, arXiv:2205.14135), for any type and head
// size. Backward runs once per tile of queries and once per tile of keys. Each run recomputes the scores, so
// that one block sums every gradient in a fixed order.

#include <type_traits>

#include "runtime/device/cuda/attention.cuh"

namespace mpt::runtime::cuda {
namespace {

// A block holds tiles of queries, keys and values in shared memory, of kRows rows each. The lanes of a warp
// read equal columns of neighbouring rows together. One more element per row puts these in different banks.
constexpr int64_t padded(int64_t columns) { return columns + 1; }

/// Copies `tile` rows from `first` on into shared memory, with zeros after the last row.
template <class T>
__device__ void load_tile(const T* from, int64_t row, int64_t first, int64_t rows, int64_t columns, int tile,
                          State<T>* to) {
  for (int64_t i = threadIdx.x; i < tile * columns; i += blockDim.x) {
    const int64_t r = first + i / columns;
    to[i / columns * padded(columns) + i % columns] =
        r < rows ? wide(from[r * row + i % columns]) : State<T>(0);
  }
}

template <class S>
__device__ S dot(const S* a, const S* b, int64_t count) {
  S sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

/// The score of a query and a key from their product, and its derivative with respect to the product.
template <class S>
struct Scoring {
  S scale, cap;
  __device__ S score(S product) const {
    return cap > S(0) ? cap * tanh(product * scale / cap) : product * scale;
  }
  __device__ S slope(S score) const {
    return cap > S(0) ? scale * (S(1) - score * score / (cap * cap)) : scale;
  }
};
template <class S>
__device__ Scoring<S> scoring_of(const AttentionShape& s) {
  return {S(s.scale > 0.0 ? S(s.scale) : S(1) / sqrt(S(s.head_dim))), S(s.cap)};
}

// Shared memory: queries and keys [tile, d], values and output [tile, e], scores [tile, tile], and per row
// maximum, sum and factor.
template <class T>
int64_t forward_shared(const AttentionShape& s, int64_t rows) {
  const int64_t columns = 2 * padded(s.head_dim) + padded(s.values()) + s.values() + padded(rows) + 3;
  return rows * columns * int64_t(sizeof(State<T>));
}

// Blocks: tiles of queries x heads x batch.
template <class T, class Out, int kRows>
// NOLINTNEXTLINE(readability-function-size): its tiles stay in registers and shared memory from start to end.
__global__ void attention_forward_kernel(Operands<T> in, bool join, Out* out, State<T>* log_sum_exp) {
  using S = State<T>;
  MPT_DYNAMIC_SHARED(shared);
  const AttentionShape& shape = in.shape;
  const int64_t d = shape.head_dim, e = shape.values(), head = blockIdx.y, batch = blockIdx.z;
  const int64_t first = int64_t(blockIdx.x) * kRows;
  S* const q = reinterpret_cast<S*>(shared);
  S* const k = q + kRows * padded(d);
  S* const v = k + kRows * padded(d);
  S* const o = v + kRows * padded(e);
  S* const p = o + kRows * e;
  S* const highest = p + kRows * padded(kRows);
  S* const sum = highest + kRows;
  S* const factor = sum + kRows;
  const Scoring<S> scoring = scoring_of<S>(shape);
  load_tile(in.queries(batch, head), shape.row(), first, shape.sequence, d, kRows, q);
  for (int64_t i = threadIdx.x; i < kRows * e; i += blockDim.x) o[i] = 0;
  if (threadIdx.x < kRows) {
    highest[threadIdx.x] = S(-INFINITY);
    sum[threadIdx.x] = 0;
  }
  const int64_t most = in.seen_by_tile(first, kRows);
  const T* const keys = in.of_keys(batch, head / in.group());
  const T* const values = in.of_values(batch, head / in.group());
  for (int64_t key = in.unseen(first) / kRows * kRows; key < most; key += kRows) {
    __syncthreads();
    load_tile(keys, in.kv_row, key, in.keys, d, kRows, k);
    load_tile(values, in.kv_row, key, in.keys, e, kRows, v);
    __syncthreads();
    for (int i = threadIdx.x; i < kRows * kRows; i += blockDim.x) {
      const int r = i / kRows, c = i % kRows;
      p[r * padded(kRows) + c] = in.sees(first + r, key + c)
                                     ? scoring.score(dot(q + r * padded(d), k + c * padded(d), d))
                                     : S(-INFINITY);
    }
    __syncthreads();
    if (threadIdx.x < kRows) {
      S* const row = p + threadIdx.x * padded(kRows);
      S high = highest[threadIdx.x];
      for (int c = 0; c < kRows; ++c) high = max(high, row[c]);
      // A query that has seen no key yet keeps its zeros.
      const bool blind = high == S(-INFINITY);
      const S shrink = blind ? S(1) : exp(highest[threadIdx.x] - high);
      S total = sum[threadIdx.x] * shrink;
      for (int c = 0; c < kRows; ++c) total += row[c] = blind ? S(0) : exp(row[c] - high);
      highest[threadIdx.x] = high;
      sum[threadIdx.x] = total;
      factor[threadIdx.x] = shrink;
    }
    __syncthreads();
    for (int64_t i = threadIdx.x; i < kRows * e; i += blockDim.x) {
      const int64_t r = i / e, c = i % e;
      S value = o[i] * factor[r];
      for (int n = 0; n < kRows; ++n) value += p[r * padded(kRows) + n] * v[n * padded(e) + c];
      o[i] = value;
    }
  }
  __syncthreads();
  // The result is joined with that over earlier keys, by their log-sum-exps.
  S* const lse = log_sum_exp + in.statistics(batch, head);
  Out* const to = out + in.out(batch, head);
  for (int64_t i = threadIdx.x; i < kRows * e; i += blockDim.x) {
    const int64_t r = i / e, query = first + r;
    if (query >= shape.sequence) continue;
    const S own = sum[r] > S(0) ? highest[r] + log(sum[r]) : S(-INFINITY);
    Out& place = to[query * shape.outputs() + i % e];
    const Joined<S> joined(own, join ? lse[query] : S(-INFINITY));
    const S value = sum[r] > S(0) ? o[i] / sum[r] * joined.own_factor : S(0);
    place = narrow<Out>(join ? value + S(wide(place)) * joined.earlier_factor : value);
  }
  __syncthreads();  // every thread has read the old values
  if (threadIdx.x >= kRows || first + threadIdx.x >= shape.sequence) return;
  const S own = sum[threadIdx.x] > S(0) ? highest[threadIdx.x] + log(sum[threadIdx.x]) : S(-INFINITY);
  S& place = lse[first + threadIdx.x];
  place = Joined<S>(own, join ? place : S(-INFINITY)).all;
}

// delta [b, a, s]: the sum over columns of the output times its gradient, by one warp each.
template <class T>
__global__ void attention_delta_kernel(AttentionShape s, const T* dout, const T* out, State<T>* delta) {
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < s.tokens() * s.heads; i += grid_stride() / kWarp) {
    const int64_t token = i / s.heads, head = i % s.heads;
    State<T> sum = 0;
    for (int64_t c = lane; c < s.values(); c += kWarp)
      sum += wide(dout[i * s.values() + c]) * wide(out[i * s.values() + c]);
    sum = warp_reduce(sum, Sum());
    if (lane == 0) delta[(token / s.sequence * s.heads + head) * s.sequence + token % s.sequence] = sum;
  }
}

// Shared memory: queries [tile, d], gradients of their output [tile, e], keys, values, probabilities and
// score gradients [tile, tile], and `sums` columns of sums.
template <class T>
int64_t backward_shared(const AttentionShape& s, int64_t sums, int64_t rows) {
  const int64_t columns = 2 * (padded(s.head_dim) + padded(s.values()) + padded(rows)) + sums;
  return rows * columns * int64_t(sizeof(State<T>));
}

template <class T, int kRows>
struct BackwardTiles {
  using S = State<T>;
  S *q, *d_out, *k, *v, *p, *ds, *sums;
  __device__ BackwardTiles(unsigned char* shared, const AttentionShape& s) {
    q = reinterpret_cast<S*>(shared);
    d_out = q + kRows * padded(s.head_dim);
    k = d_out + kRows * padded(s.values());
    v = k + kRows * padded(s.head_dim);
    p = v + kRows * padded(s.values());
    ds = p + kRows * padded(kRows);
    sums = ds + kRows * padded(kRows);
  }

  // Loads queries and the gradient of their output.
  __device__ void load_queries(const Operands<T>& in, int64_t batch, int64_t head, int64_t first,
                               const T* dout) {
    const AttentionShape& s = in.shape;
    load_tile(in.queries(batch, head), s.row(), first, s.sequence, s.head_dim, kRows, q);
    load_tile(dout + in.out(batch, head), s.outputs(), first, s.sequence, s.values(), kRows, d_out);
  }

  // With P = softmax(S): dS = P (dO V^T - delta), scaled.
  __device__ void score_gradients(const Operands<T>& in, int64_t first, int64_t key, const S* lse,
                                  const S* delta) {
    const int64_t d = in.shape.head_dim, e = in.shape.values();
    const Scoring<S> scoring = scoring_of<S>(in.shape);
    for (int i = threadIdx.x; i < kRows * kRows; i += blockDim.x) {
      const int r = i / kRows, c = i % kRows;
      S &probability = p[r * padded(kRows) + c], &gradient = ds[r * padded(kRows) + c];
      probability = gradient = S(0);
      if (!in.sees(first + r, key + c)) continue;
      const S score = scoring.score(dot(q + r * padded(d), k + c * padded(d), d));
      probability = exp(score - lse[first + r]);
      const S by_probability = dot(d_out + r * padded(e), v + c * padded(e), e) - delta[first + r];
      gradient = probability * by_probability * scoring.slope(score);
    }
  }
};

// Blocks: tiles of queries x heads x batch.
template <class T, class Out, int kRows>
__global__ void attention_query_gradient_kernel(Operands<T> in, const T* dout, const State<T>* log_sum_exp,
                                                const State<T>* delta, Out* dq, int64_t dq_row, bool add) {
  using S = State<T>;
  MPT_DYNAMIC_SHARED(shared);
  const AttentionShape& shape = in.shape;
  const int64_t d = shape.head_dim, head = blockIdx.y, batch = blockIdx.z;
  const int64_t first = int64_t(blockIdx.x) * kRows;
  BackwardTiles<T, kRows> tiles(shared, shape);
  for (int64_t i = threadIdx.x; i < kRows * d; i += blockDim.x) tiles.sums[i] = 0;
  tiles.load_queries(in, batch, head, first, dout);
  const int64_t most = in.seen_by_tile(first, kRows);
  const S* const lse = log_sum_exp + in.statistics(batch, head);
  for (int64_t key = in.unseen(first) / kRows * kRows; key < most; key += kRows) {
    __syncthreads();
    load_tile(in.of_keys(batch, head / in.group()), in.kv_row, key, in.keys, d, kRows, tiles.k);
    load_tile(in.of_values(batch, head / in.group()), in.kv_row, key, in.keys, shape.values(), kRows,
              tiles.v);
    __syncthreads();
    tiles.score_gradients(in, first, key, lse, delta + in.statistics(batch, head));
    __syncthreads();
    for (int64_t i = threadIdx.x; i < kRows * d; i += blockDim.x) {
      S sum = tiles.sums[i];
      for (int n = 0; n < kRows; ++n)
        sum += tiles.ds[i / d * padded(kRows) + n] * tiles.k[n * padded(d) + i % d];
      tiles.sums[i] = sum;
    }
  }
  __syncthreads();
  for (int64_t i = threadIdx.x; i < kRows * d; i += blockDim.x) {
    const int64_t query = first + i / d;
    if (query >= shape.sequence) continue;
    put(dq + (batch * shape.sequence + query) * dq_row + head * d + i % d, tiles.sums[i], add);
  }
}

// Blocks: tiles of keys x key-value heads x batch.
template <class T, class Out, int kRows>
__global__ void attention_key_gradient_kernel(Operands<T> in, const T* dout, const State<T>* log_sum_exp,
                                              const State<T>* delta, Out* dk, Out* dv, int64_t dkv_row,
                                              bool add) {
  using S = State<T>;
  MPT_DYNAMIC_SHARED(shared);
  const AttentionShape& shape = in.shape;
  const int64_t d = shape.head_dim, e = shape.values(), kv_head = blockIdx.y, batch = blockIdx.z;
  const int64_t key = int64_t(blockIdx.x) * kRows;
  BackwardTiles<T, kRows> tiles(shared, shape);
  S* const sum_k = tiles.sums;
  S* const sum_v = tiles.sums + kRows * d;
  for (int64_t i = threadIdx.x; i < kRows * (d + e); i += blockDim.x) sum_k[i] = 0;
  load_tile(in.of_keys(batch, kv_head), in.kv_row, key, in.keys, d, kRows, tiles.k);
  load_tile(in.of_values(batch, kv_head), in.kv_row, key, in.keys, e, kRows, tiles.v);
  for (int64_t head = kv_head * in.group(); head < (kv_head + 1) * in.group(); ++head) {
    const S* const lse = log_sum_exp + in.statistics(batch, head);
    for (int64_t first = 0; first < shape.sequence; first += kRows) {
      if (in.seen_by_tile(first, kRows) <= key || in.unseen(first) >= key + kRows) continue;
      __syncthreads();
      tiles.load_queries(in, batch, head, first, dout);
      __syncthreads();
      tiles.score_gradients(in, first, key, lse, delta + in.statistics(batch, head));
      __syncthreads();
      for (int64_t i = threadIdx.x; i < kRows * d; i += blockDim.x) {
        S sum = sum_k[i];
        for (int r = 0; r < kRows; ++r)
          sum += tiles.ds[r * padded(kRows) + i / d] * tiles.q[r * padded(d) + i % d];
        sum_k[i] = sum;
      }
      for (int64_t i = threadIdx.x; i < kRows * e; i += blockDim.x) {
        S sum = sum_v[i];
        for (int r = 0; r < kRows; ++r)
          sum += tiles.p[r * padded(kRows) + i / e] * tiles.d_out[r * padded(e) + i % e];
        sum_v[i] = sum;
      }
    }
  }
  __syncthreads();
  const auto write = [&](const S* sums, int64_t width, Out* to) {
    for (int64_t i = threadIdx.x; i < kRows * width; i += blockDim.x) {
      const int64_t row = key + i / width;
      if (row >= in.keys) continue;
      put(to + (batch * in.keys + row) * dkv_row + kv_head * width + i % width, sums[i], add);
    }
  };
  write(sum_k, d, dk);
  write(sum_v, e, dv);
}

// Calls `go` with the largest tile, in rows, that fits this GPU's shared memory: wider heads get fewer rows.
template <class T, class Bytes, class Go>
void with_rows(const Bytes& bytes, const Go& go) {
  constexpr int kMost = sizeof(State<T>) == sizeof(float) ? 32 : 16;
  int device = 0, most = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
        "cudaDeviceGetAttribute");
  if (bytes(kMost) <= most) return go(std::integral_constant<int, kMost>());
  go(std::integral_constant<int, kMost / 2>());
}

template <class T, class Out>
void attention_forward(cudaStream_t stream, const Operands<T>& in, bool join, void* out, void* log_sum_exp) {
  const AttentionShape& s = in.shape;
  if constexpr (sizeof(T) == 2)
    if (uses_tensor_cores<T>(s))
      return tensor_core_forward<T, Out>(stream, in, join, as<Out>(out), as<float>(log_sum_exp));
  const auto bytes = [&](int64_t rows) { return forward_shared<T>(s, rows); };
  with_rows<T>(bytes, [&](auto rows) {
    const dim3 grid(unsigned(ceil_div(s.sequence, rows)), unsigned(s.heads), unsigned(s.batch));
    launch(stream, grid, kThreads, bytes(rows), attention_forward_kernel<T, Out, rows>, in, join, out,
           log_sum_exp);
  });
}

template <class T, class Out>
void attention_backward(StreamDevice& gpu, const Operands<T>& in, const void* dout, const void* out,
                        const void* log_sum_exp, const AttentionGradients& g) {
  const AttentionShape& s = in.shape;
  const cudaStream_t stream = gpu.stream();
  const Scratch room(gpu.streams(), s.tokens() * s.heads * int64_t(sizeof(State<T>)));
  State<T>* const delta = as<State<T>>(room.data());
  launch_each(stream, s.tokens() * s.heads * kWarp, attention_delta_kernel<T>, s, dout, out, delta);
  if constexpr (sizeof(T) == 2)
    if (uses_tensor_cores<T>(s))
      return tensor_core_backward<T, Out>(stream, in, as<T>(dout), as<float>(log_sum_exp), delta, g);
  const auto blocks = [&](int64_t rows, int64_t tile, int64_t heads) {
    return dim3(unsigned(ceil_div(rows, tile)), unsigned(heads), unsigned(s.batch));
  };
  const auto of_queries = [&](int64_t rows) { return backward_shared<T>(s, s.head_dim, rows); };
  with_rows<T>(of_queries, [&](auto rows) {
    launch(stream, blocks(s.sequence, rows, s.heads), kThreads, of_queries(rows),
           attention_query_gradient_kernel<T, Out, rows>, in, dout, log_sum_exp, delta, g.dq, g.q_row, g.add);
  });
  const auto of_keys = [&](int64_t rows) { return backward_shared<T>(s, s.head_dim + s.values(), rows); };
  with_rows<T>(of_keys, [&](auto rows) {
    launch(stream, blocks(in.keys, rows, s.kv_heads), kThreads, of_keys(rows),
           attention_key_gradient_kernel<T, Out, rows>, in, dout, log_sum_exp, delta, g.dk, g.dv, g.kv_row,
           g.add);
  });
}

template <class T>
Operands<T> operands_of(const AttentionShape& s, const void* qkv) {
  const T *const q = as<T>(qkv), *const k = q + s.heads * s.head_dim;
  return {s, q, k, k + s.kv_heads * s.head_dim, s.row(), s.sequence, nullptr, nullptr};
}
template <class T>
Operands<T> operands_of(StreamDevice& gpu, const AttentionBlock& block, const void* qkv, const void* kv) {
  const AttentionShape& s = block.shape;
  const int32_t* const hidden =
      block.hidden.empty() ? nullptr : gpu.kept_list(block.hidden.data(), s.sequence);
  const T* const k = as<T>(kv);
  return {s,
          as<T>(qkv),
          k,
          k + s.kv_heads * s.head_dim,
          s.kv_row(),
          block.keys,
          gpu.kept_list(block.visible.data(), s.sequence),
          hidden};
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const AttentionForward& o) {
  MPT_DISPATCH(type, (attention_forward<T, T>(gpu.stream(), operands_of<T>(o.shape, o.qkv), false, o.out,
                                              o.log_sum_exp)));
}

void run(StreamDevice& gpu, DataType type, const AttentionBackward& o) {
  const AttentionShape& s = o.shape;
  MPT_DISPATCH(type, {
    T* const d = as<T>(o.dqkv);
    const AttentionGradients gradients{d, d + s.heads * s.head_dim, d + s.rotated(), s.row(), s.row(), false};
    attention_backward<T, T>(gpu, operands_of<T>(s, o.qkv), o.dout, o.out, o.log_sum_exp, gradients);
  });
}

// If blocks of keys are summed, sums are in full precision.
void run(StreamDevice& gpu, DataType type, const AttentionBlockForward& o) {
  MPT_DISPATCH(type, (attention_forward<T, S>(gpu.stream(), operands_of<T>(gpu, o.block, o.qkv, o.kv),
                                              !o.first, o.out, o.log_sum_exp)));
}

void run(StreamDevice& gpu, DataType type, const AttentionBlockBackward& o) {
  const AttentionShape& s = o.block.shape;
  MPT_DISPATCH(type, {
    const AttentionGradients gradients{
        o.dq, o.dkv, as<S>(o.dkv) + s.kv_heads * s.head_dim, s.heads * s.head_dim, s.kv_row(), true};
    attention_backward<T, S>(gpu, operands_of<T>(gpu, o.block, o.qkv, o.kv), o.dout, o.out, o.log_sum_exp,
                             gradients);
  });
}

}  // namespace mpt::runtime::cuda
