// SPDX-License-Identifier: Apache-2.0

// Attention on tensor cores for 16-bit types and heads of 64 and 128: FlashAttention-2's scheme (Dao 2023,
// arXiv:2307.08691), with a warp per 16 rows of a tile. As in attention.cu, one warp sums each gradient in a
// fixed order.

#include "runtime/device/cuda/attention.cuh"
#include "runtime/device/cuda/warp_matrix.cuh"

namespace mpt::runtime::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kOwnRows = 16 * kWarps;  // rows of the block's own tile: queries, or keys for their gradients
constexpr int kPadding = 8;            // elements that keep rows of shared memory in different banks

// Rows of the tiles in the loop: the most that registers allow.
template <int D>
constexpr int kForwardRows = 64;
template <int D>
constexpr int kBackwardRows = 32;

// A tile [rows, D] in shared memory, with zeros after the last row.
template <class T, int D>
struct Tile {
  static constexpr int kStride = D + kPadding;
  T* data;
  __device__ T* row(int r) const { return data + r * kStride; }

  __device__ void load(const T* from, int64_t stride, int64_t first, int64_t rows, int count) const {
    constexpr int kWidth = int(16 / sizeof(T));
    for (int i = threadIdx.x; i < count * D / kWidth; i += blockDim.x) {
      const int r = i / (D / kWidth), c = i % (D / kWidth) * kWidth;
      store(row(r) + c,
            first + r < rows ? cuda::load<kWidth>(from + (first + r) * stride + c) : Pack<T, kWidth>{});
    }
  }
};
template <class T, int D>
constexpr int64_t kTileBytes = (D + kPadding) * int64_t(sizeof(T));  // of one row

struct Lane {
  int warp, lane, g, t;
  __device__ Lane()
      : warp(int(threadIdx.x) / kWarp), lane(int(threadIdx.x) % kWarp), g(lane / 4), t(lane % 4) {}
};

// The warp's 16 rows of `tile` as operands a, one per 16 columns.
template <class T, int D>
__device__ void load_left(uint32_t (&a)[4], const Tile<T, D>& tile, const Lane& at, int step) {
  const T* const top = tile.row(at.warp * 16 + at.g) + step * 16 + 2 * at.t;
  const T* const bottom = top + 8 * Tile<T, D>::kStride;
  a[0] = load_pair(top);
  a[1] = load_pair(bottom);
  a[2] = load_pair(top + 8);
  a[3] = load_pair(bottom + 8);
}

// c[n] [16, 8] = the warp's rows of `left` times rows 8n .. 8n+8 of `right`, transposed.
template <class T, int D, int N>
__device__ void rows_times_rows(float (&c)[N][4], const Tile<T, D>& left, const Tile<T, D>& right,
                                const Lane& at) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    for (int i = 0; i < 4; ++i) c[n][i] = 0.0f;
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t a[4];
    load_left(a, left, at, step);
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const T* const from = right.row(n * 8 + at.g) + step * 16 + 2 * at.t;
      const uint32_t b[2] = {load_pair(from), load_pair(from + 8)};
      multiply_add<T>(c[n], a, b);
    }
  }
}

// sum [16, D] += p [16, 8 N] times `tile` [8 N, D], with p in the arrangement of a product's result.
template <class T, int D, int N>
__device__ void add_product(float (&sum)[D / 8][4], const float (&p)[N][4], const Tile<T, D>& tile,
                            const Lane& at) {
#pragma unroll
  for (int step = 0; step < N / 2; ++step) {
    const uint32_t a[4] = {pair_of<T>(p[2 * step][0], p[2 * step][1]),
                           pair_of<T>(p[2 * step][2], p[2 * step][3]),
                           pair_of<T>(p[2 * step + 1][0], p[2 * step + 1][1]),
                           pair_of<T>(p[2 * step + 1][2], p[2 * step + 1][3])};
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      uint32_t b[2];
      load_rows(b, tile.row(step * 16 + at.lane % 16) + n * 8);
      multiply_add<T>(sum[n], a, b);
    }
  }
}

// `value` joined over the four lanes that share a row of c.
template <class Join>
__device__ float over_row(float value, Join join) {
  value = join(value, __shfl_xor_sync(0xffffffffu, value, 1));
  return join(value, __shfl_xor_sync(0xffffffffu, value, 2));
}

// The first query of a block's tile. Later queries see more keys, so blocks with later queries begin first.
__device__ int64_t first_query() { return int64_t(gridDim.x - 1 - blockIdx.x) * kOwnRows; }

// Blocks: tiles of queries x heads x batch. c[i] belongs to row g for i < 2, to g + 8 for the others.
template <class T, class Out, int D>
__global__ void __launch_bounds__(kWarps* kWarp)
    // NOLINTNEXTLINE(readability-function-size): its tiles stay in registers from start to end.
    forward_kernel(Operands<T> in, bool join, Out* out, float* log_sum_exp) {
  constexpr int kRows = kForwardRows<D>, kColumns = kRows / 8;
  MPT_DYNAMIC_SHARED(shared);
  const Tile<T, D> q{reinterpret_cast<T*>(shared)}, k{q.row(kOwnRows)}, v{k.row(kRows)};
  const Lane at;
  const int64_t head = blockIdx.y, batch = blockIdx.z, first = first_query();
  const float scale = rsqrtf(float(D));
  q.load(in.queries(batch, head), in.shape.row(), first, in.shape.sequence, kOwnRows);
  const int64_t query[2] = {first + at.warp * 16 + at.g, first + at.warp * 16 + at.g + 8};
  const int64_t seen[2] = {in.seen(query[0]), in.seen(query[1])};
  float o[D / 8][4] = {};
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  const int64_t most = in.seen_by_tile(first, kOwnRows);
  for (int64_t key = 0; key < most; key += kRows) {
    __syncthreads();
    k.load(in.of_keys(batch, head / in.group()), in.kv_row, key, in.keys, kRows);
    v.load(in.of_values(batch, head / in.group()), in.kv_row, key, in.keys, kRows);
    __syncthreads();
    float p[kColumns][4];
    rows_times_rows(p, q, k, at);
    // Unrolled, so that o and p stay in registers.
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float high = highest[half];
      for (int n = 0; n < kColumns; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          const bool hidden = key + n * 8 + 2 * at.t + i % 2 >= seen[half];
          p[n][i] = hidden ? -INFINITY : p[n][i] * scale;
          high = max(high, p[n][i]);
        }
      high = over_row(high, Maximum());
      const bool blind = high == -INFINITY;
      const float shrink = blind ? 1.0f : __expf(highest[half] - high);
      float total = 0.0f;
      for (int n = 0; n < kColumns; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i)
          total += p[n][i] = blind ? 0.0f : __expf(p[n][i] - high);
      for (int n = 0; n < D / 8; ++n)
        for (int i = 2 * half; i < 2 * half + 2; ++i) o[n][i] *= shrink;
      sum[half] = sum[half] * shrink + over_row(total, Sum());
      highest[half] = high;
    }
    add_product(o, p, v, at);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (query[half] >= in.shape.sequence) continue;
    float& place = log_sum_exp[in.statistics(batch, head) + query[half]];
    const float own = sum[half] > 0.0f ? highest[half] + logf(sum[half]) : -INFINITY;
    const Joined<float> joined(own, join ? place : -INFINITY);
    const float factor = sum[half] > 0.0f ? joined.own_factor / sum[half] : 0.0f;
    Out* const to = out + in.out(batch, head) + query[half] * in.shape.heads * D + 2 * at.t;
    for (int n = 0; n < D / 8; ++n)
      for (int i = 0; i < 2; ++i) {
        const float earlier = join ? float(wide(to[n * 8 + i])) * joined.earlier_factor : 0.0f;
        to[n * 8 + i] = narrow<Out>(o[n][2 * half + i] * factor + earlier);
      }
    // All four lanes of the row have read the old values. Other rows' lanes may not take part.
    __syncwarp(0xfu << (4 * at.g));
    if (at.t == 0) place = joined.all;
  }
}

// Blocks: tiles of queries x heads x batch.
template <class T, class Out, int D>
__global__ void __launch_bounds__(kWarps* kWarp)
    query_gradient_kernel(Operands<T> in, const T* dout, const float* log_sum_exp, const float* delta,
                          Out* dq, int64_t dq_row, bool add) {
  constexpr int kRows = kBackwardRows<D>, kColumns = kRows / 8;
  MPT_DYNAMIC_SHARED(shared);
  const Tile<T, D> q{reinterpret_cast<T*>(shared)}, d_out{q.row(kOwnRows)}, k{d_out.row(kOwnRows)},
      v{k.row(kRows)};
  const Lane at;
  const AttentionShape& shape = in.shape;
  const int64_t head = blockIdx.y, batch = blockIdx.z, first = first_query();
  const float scale = rsqrtf(float(D));
  q.load(in.queries(batch, head), shape.row(), first, shape.sequence, kOwnRows);
  d_out.load(dout + in.out(batch, head), shape.heads * D, first, shape.sequence, kOwnRows);
  int64_t query[2], seen[2];
  float lse[2], delta_of[2];
  for (int half = 0; half < 2; ++half) {
    query[half] = first + at.warp * 16 + at.g + 8 * half;
    seen[half] = in.seen(query[half]);
    const bool real = query[half] < shape.sequence;
    lse[half] = real ? log_sum_exp[in.statistics(batch, head) + query[half]] : 0.0f;
    delta_of[half] = real ? delta[in.statistics(batch, head) + query[half]] : 0.0f;
  }
  float sum[D / 8][4] = {};
  const int64_t most = in.seen_by_tile(first, kOwnRows);
  for (int64_t key = 0; key < most; key += kRows) {
    __syncthreads();
    k.load(in.of_keys(batch, head / in.group()), in.kv_row, key, in.keys, kRows);
    v.load(in.of_values(batch, head / in.group()), in.kv_row, key, in.keys, kRows);
    __syncthreads();
    float p[kColumns][4], ds[kColumns][4];
    rows_times_rows(p, q, k, at);
    rows_times_rows(ds, d_out, v, at);
    for (int n = 0; n < kColumns; ++n)
      for (int i = 0; i < 4; ++i) {
        const int half = i / 2;
        const bool hidden = key + n * 8 + 2 * at.t + i % 2 >= seen[half];
        ds[n][i] = hidden ? 0.0f : __expf(p[n][i] * scale - lse[half]) * (ds[n][i] - delta_of[half]) * scale;
      }
    add_product(sum, ds, k, at);
  }
  for (int half = 0; half < 2; ++half) {
    if (query[half] >= shape.sequence) continue;
    Out* const to = dq + (batch * shape.sequence + query[half]) * dq_row + head * D + 2 * at.t;
    for (int n = 0; n < D / 8; ++n)
      for (int i = 0; i < 2; ++i) put(to + n * 8 + i, sum[n][2 * half + i], add);
  }
}

// Blocks: tiles of keys x key-value heads x batch. Products are transposed: rows are keys, columns queries.
template <class T, class Out, int D>
__global__ void __launch_bounds__(kWarps* kWarp)
    key_gradient_kernel(Operands<T> in, const T* dout, const float* log_sum_exp, const float* delta, Out* dk,
                        Out* dv, int64_t dkv_row, bool add) {
  constexpr int kRows = kBackwardRows<D>, kColumns = kRows / 8;
  MPT_DYNAMIC_SHARED(shared);
  const Tile<T, D> k{reinterpret_cast<T*>(shared)}, v{k.row(kOwnRows)}, q{v.row(kOwnRows)},
      d_out{q.row(kRows)};
  float* const lse = reinterpret_cast<float*>(d_out.row(kRows));
  float* const delta_of = lse + kRows;
  const Lane at;
  const AttentionShape& shape = in.shape;
  const int64_t kv_head = blockIdx.y, batch = blockIdx.z, first = int64_t(blockIdx.x) * kOwnRows;
  const float scale = rsqrtf(float(D));
  k.load(in.of_keys(batch, kv_head), in.kv_row, first, in.keys, kOwnRows);
  v.load(in.of_values(batch, kv_head), in.kv_row, first, in.keys, kOwnRows);
  const int64_t key[2] = {first + at.warp * 16 + at.g, first + at.warp * 16 + at.g + 8};
  float sum_k[D / 8][4] = {}, sum_v[D / 8][4] = {};
  for (int64_t head = kv_head * in.group(); head < (kv_head + 1) * in.group(); ++head)
    for (int64_t query = 0; query < shape.sequence; query += kRows) {
      if (in.seen_by_tile(query, kRows) <= first) continue;
      __syncthreads();
      q.load(in.queries(batch, head), shape.row(), query, shape.sequence, kRows);
      d_out.load(dout + in.out(batch, head), shape.heads * D, query, shape.sequence, kRows);
      if (threadIdx.x < kRows) {
        const int64_t row = query + threadIdx.x;
        const bool real = row < shape.sequence;
        lse[threadIdx.x] = real ? log_sum_exp[in.statistics(batch, head) + row] : 0.0f;
        delta_of[threadIdx.x] = real ? delta[in.statistics(batch, head) + row] : 0.0f;
      }
      __syncthreads();
      float p[kColumns][4], ds[kColumns][4];
      rows_times_rows(p, k, q, at);
      rows_times_rows(ds, v, d_out, at);
      for (int n = 0; n < kColumns; ++n)
        for (int i = 0; i < 4; ++i) {
          const int column = n * 8 + 2 * at.t + i % 2;
          const bool hidden = key[i / 2] >= in.seen(query + column);
          p[n][i] = hidden ? 0.0f : __expf(p[n][i] * scale - lse[column]);
          ds[n][i] = p[n][i] * (ds[n][i] - delta_of[column]) * scale;
        }
      add_product(sum_v, p, d_out, at);
      add_product(sum_k, ds, q, at);
    }
  for (int half = 0; half < 2; ++half) {
    if (key[half] >= in.keys) continue;
    const int64_t place = (batch * in.keys + key[half]) * dkv_row + kv_head * D + 2 * at.t;
    for (int n = 0; n < D / 8; ++n)
      for (int i = 0; i < 2; ++i) {
        put(dk + place + n * 8 + i, sum_k[n][2 * half + i], add);
        put(dv + place + n * 8 + i, sum_v[n][2 * half + i], add);
      }
  }
}

dim3 tiles_of(int64_t rows, int64_t heads, int64_t batch) {
  return dim3(unsigned(ceil_div(rows, kOwnRows)), unsigned(heads), unsigned(batch));
}

template <class T, class Out, int D>
void forward(cudaStream_t stream, const Operands<T>& in, bool join, Out* out, float* log_sum_exp) {
  launch(stream, tiles_of(in.shape.sequence, in.shape.heads, in.shape.batch), kWarps * kWarp,
         (kOwnRows + 2 * kForwardRows<D>)*kTileBytes<T, D>, forward_kernel<T, Out, D>, in, join, out,
         log_sum_exp);
}

template <class T, class Out, int D>
void backward(cudaStream_t stream, const Operands<T>& in, const T* dout, const float* log_sum_exp,
              const float* delta, const AttentionGradients& g) {
  constexpr int64_t kBytes = (2 * kOwnRows + 2 * kBackwardRows<D>)*kTileBytes<T, D>;
  launch(stream, tiles_of(in.shape.sequence, in.shape.heads, in.shape.batch), kWarps * kWarp, kBytes,
         query_gradient_kernel<T, Out, D>, in, dout, log_sum_exp, delta, static_cast<Out*>(g.dq), g.q_row,
         g.add);
  launch(stream, tiles_of(in.keys, in.shape.kv_heads, in.shape.batch), kWarps * kWarp,
         kBytes + 2 * kBackwardRows<D> * int64_t(sizeof(float)), key_gradient_kernel<T, Out, D>, in, dout,
         log_sum_exp, delta, static_cast<Out*>(g.dk), static_cast<Out*>(g.dv), g.kv_row, g.add);
}

}  // namespace

template <class T, class Out>
void tensor_core_forward(cudaStream_t stream, const Operands<T>& in, bool join, Out* out,
                         float* log_sum_exp) {
  in.shape.head_dim == 64 ? forward<T, Out, 64>(stream, in, join, out, log_sum_exp)
                          : forward<T, Out, 128>(stream, in, join, out, log_sum_exp);
}

template <class T, class Out>
void tensor_core_backward(cudaStream_t stream, const Operands<T>& in, const T* dout, const float* log_sum_exp,
                          const float* delta, const AttentionGradients& gradients) {
  in.shape.head_dim == 64 ? backward<T, Out, 64>(stream, in, dout, log_sum_exp, delta, gradients)
                          : backward<T, Out, 128>(stream, in, dout, log_sum_exp, delta, gradients);
}

#define MPT_INSTANTIATE(T, Out)                                                                        \
  template void tensor_core_forward(cudaStream_t, const Operands<T>&, bool, Out*, float*);             \
  template void tensor_core_backward<T, Out>(cudaStream_t, const Operands<T>&, const T*, const float*, \
                                             const float*, const AttentionGradients&);
MPT_INSTANTIATE(Bfloat16, Bfloat16)
MPT_INSTANTIATE(Bfloat16, float)
MPT_INSTANTIATE(Half, Half)
MPT_INSTANTIATE(Half, float)

}  // namespace mpt::runtime::cuda
