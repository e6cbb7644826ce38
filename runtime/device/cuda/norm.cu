// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/kernels.h"

namespace mpt::runtime::cuda {
namespace {

// Rows per partial sum: enough blocks to fill a GPU at training shapes, few enough partial sums.
constexpr int64_t kMostChunks = 128, kRowsPerChunk = 32;
constexpr int kChunkRows = 8;  // rows of threads in a block of a column sum

int64_t chunks_of(int64_t rows) {
  return std::max<int64_t>(1, std::min(kMostChunks, ceil_div(rows, kRowsPerChunk)));
}

// Sums over rows in two steps: partial sums of chunks of rows, then over chunks in order. Value gives, for a
// row and a column, K values whose sums are wanted.
template <class S, int K, class Value>
__global__ void partial_column_sums(int64_t rows, int64_t columns, Value value, S* partial) {
  __shared__ S sums[K][kChunkRows][kWarp];
  const int64_t column = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  const int64_t chunk = blockIdx.y, chunks = gridDim.y;
  S sum[K] = {};
  if (column < columns) {
    for (int64_t r = rows * chunk / chunks + threadIdx.y; r < rows * (chunk + 1) / chunks; r += kChunkRows) {
      S values[K];
      value(r, column, values);
      for (int k = 0; k < K; ++k) sum[k] += values[k];
    }
  }
  for (int k = 0; k < K; ++k) sums[k][threadIdx.y][threadIdx.x] = sum[k];
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int k = 0; k < K; ++k) {
    S total = 0;
    for (int y = 0; y < kChunkRows; ++y) total += sums[k][y][threadIdx.x];
    partial[(k * chunks + chunk) * columns + column] = total;
  }
}

template <class S>
__global__ void add_column_sums(int64_t chunks, int64_t columns, const S* partial, S* to) {
  __shared__ S sums[kChunkRows][kWarp];
  const int64_t column = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  S sum = 0;
  if (column < columns) {
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kChunkRows)
      sum += partial[chunk * columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  S total = 0;
  for (int y = 0; y < kChunkRows; ++y) total += sums[y][threadIdx.x];
  to[column] += total;
}

// to[k] may be null: that sum is not wanted.
template <class S, int K, class Value>
void column_sums(cudaStream_t stream, int64_t rows, int64_t columns, const Value& value, void* scratch,
                 S* const (&to)[K]) {
  const int64_t chunks = chunks_of(rows);
  S* const partial = static_cast<S*>(scratch);
  launch(stream, dim3(unsigned(ceil_div(columns, kWarp)), unsigned(chunks)), dim3(kWarp, kChunkRows), 0,
         partial_column_sums<S, K, Value>, rows, columns, value, partial);
  for (int k = 0; k < K; ++k) {
    if (to[k] == nullptr) continue;
    launch(stream, dim3(unsigned(ceil_div(columns, kWarp))), dim3(kWarp, kChunkRows), 0, add_column_sums<S>,
           chunks, columns, partial + k * chunks * columns, to[k]);
  }
}

template <class T>
struct BiasGradient {
  const T* dy;
  int64_t columns;
  __device__ void operator()(int64_t r, int64_t c, State<T>* values) const {
    values[0] = wide(dy[r * columns + c]);
  }
};

template <class T>
struct NormWeightGradient {
  const T *dy, *x;
  const State<T>* statistics;
  int64_t rows, columns;
  bool centred;
  __device__ void operator()(int64_t r, int64_t c, State<T>* values) const {
    const State<T> g = wide(dy[r * columns + c]);
    const State<T> mean = centred ? statistics[r] : State<T>(0);
    values[0] = g * (wide(x[r * columns + c]) - mean) * statistics[centred ? rows + r : r];
    values[1] = g;
  }
};

// A block per row.
template <class T, int N>
__global__ void norm_forward_kernel(NormShape s, const T* x, const T* scale, const T* bias, T* y,
                                    State<T>* statistics) {
  using S = State<T>;
  const bool centred = s.kind == NormKind::layer_norm;
  const int64_t r = blockIdx.x, first = threadIdx.x * N, stride = int64_t(blockDim.x) * N;
  const T* const row = x + r * s.columns;
  S mean = 0;
  if (centred) {
    S sum = 0;
    for (int64_t c = first; c < s.columns; c += stride) {
      const auto pack = load<N>(row + c);
      for (int n = 0; n < N; ++n) sum += wide(pack.at[n]);
    }
    mean = block_sum(sum) / S(s.columns);
  }
  S squares = 0;
  for (int64_t c = first; c < s.columns; c += stride) {
    const auto pack = load<N>(row + c);
    for (int n = 0; n < N; ++n) {
      const S d = wide(pack.at[n]) - mean;
      squares += d * d;
    }
  }
  const S reciprocal = S(1) / sqrt(block_sum(squares) / S(s.columns) + S(s.epsilon));
  for (int64_t c = first; c < s.columns; c += stride) {
    const auto pack = load<N>(row + c), gain = load<N>(scale + c);
    Pack<T, N> shift{}, out;
    if (bias != nullptr) shift = load<N>(bias + c);
    for (int n = 0; n < N; ++n) {
      const S value = (wide(pack.at[n]) - mean) * reciprocal * wide(gain.at[n]);
      out.at[n] = narrow<T>(bias != nullptr ? value + wide(shift.at[n]) : value);
    }
    store(y + r * s.columns + c, out);
  }
  if (threadIdx.x != 0) return;
  if (centred) statistics[r] = mean;
  statistics[centred ? s.rows + r : r] = reciprocal;
}

// dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * scale; rms norm has no mean(g).
template <class T, int N>
__global__ void norm_backward_input_kernel(NormShape s, const T* dy, const T* x, const T* scale,
                                           const State<T>* statistics, T* dx) {
  using S = State<T>;
  const bool centred = s.kind == NormKind::layer_norm;
  const int64_t r = blockIdx.x, first = threadIdx.x * N, stride = int64_t(blockDim.x) * N;
  const S mean = centred ? statistics[r] : S(0), reciprocal = statistics[centred ? s.rows + r : r];
  S sum_g = 0, sum_gx = 0;
  for (int64_t c = first; c < s.columns; c += stride) {
    const auto d = load<N>(dy + r * s.columns + c), v = load<N>(x + r * s.columns + c),
               gain = load<N>(scale + c);
    for (int n = 0; n < N; ++n) {
      const S g = wide(d.at[n]) * wide(gain.at[n]);
      sum_g += g;
      sum_gx += g * (wide(v.at[n]) - mean) * reciprocal;
    }
  }
  const S mean_g = centred ? block_sum(sum_g) / S(s.columns) : S(0);
  const S mean_gx = block_sum(sum_gx) / S(s.columns);
  for (int64_t c = first; c < s.columns; c += stride) {
    const auto d = load<N>(dy + r * s.columns + c), v = load<N>(x + r * s.columns + c),
               gain = load<N>(scale + c);
    Pack<T, N> out;
    for (int n = 0; n < N; ++n) {
      const S g = wide(d.at[n]) * wide(gain.at[n]), xhat = (wide(v.at[n]) - mean) * reciprocal;
      out.at[n] = narrow<T>((g - mean_g - xhat * mean_gx) * reciprocal);
    }
    store(dx + r * s.columns + c, out);
  }
}

// Where head h of token t lies in qkv, and in what was kept of its queries and keys. A warp per head below.
struct Heads {
  AttentionShape shape;
  __device__ int64_t count() const { return shape.tokens() * (shape.heads + shape.kv_heads); }
  __device__ int64_t head(int64_t i) const { return i % (shape.heads + shape.kv_heads); }
  __device__ int64_t in_qkv(int64_t i) const {
    return i / (shape.heads + shape.kv_heads) * shape.row() + head(i) * shape.head_dim;
  }
  __device__ bool is_query(int64_t i) const { return head(i) < shape.heads; }
};

template <class T>
__global__ void head_norm_forward_kernel(Heads heads, State<T> epsilon, const T* query_scale,
                                         const T* key_scale, T* qkv, T* kept) {
  using S = State<T>;
  const int64_t dim = heads.shape.head_dim;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < heads.count(); i += grid_stride() / kWarp) {
    T* const x = qkv + heads.in_qkv(i);
    const T* const scale = heads.is_query(i) ? query_scale : key_scale;
    S squares = 0;
    for (int64_t c = lane; c < dim; c += kWarp) {
      kept[i * dim + c] = x[c];
      squares += wide(x[c]) * wide(x[c]);
    }
    const S reciprocal = S(1) / sqrt(warp_reduce(squares, Sum()) / S(dim) + epsilon);
    for (int64_t c = lane; c < dim; c += kWarp) x[c] = narrow<T>(wide(x[c]) * reciprocal * wide(scale[c]));
  }
}

template <class T>
__global__ void head_reciprocals_kernel(Heads heads, State<T> epsilon, const T* kept, State<T>* reciprocals) {
  using S = State<T>;
  const int64_t dim = heads.shape.head_dim;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < heads.count(); i += grid_stride() / kWarp) {
    S squares = 0;
    for (int64_t c = lane; c < dim; c += kWarp) squares += wide(kept[i * dim + c]) * wide(kept[i * dim + c]);
    const S reciprocal = S(1) / sqrt(warp_reduce(squares, Sum()) / S(dim) + epsilon);
    if (lane == 0) reciprocals[i] = reciprocal;
  }
}

// Sums over tokens and the heads [first_head, first_head + heads).
template <class T>
struct HeadScaleGradient {
  Heads heads;
  int64_t first_head, head_count;
  const T *kept, *dqkv;
  const State<T>* reciprocals;
  __device__ void operator()(int64_t row, int64_t c, State<T>* values) const {
    const int64_t normed = heads.shape.heads + heads.shape.kv_heads;
    const int64_t i = row / head_count * normed + first_head + row % head_count;
    values[0] = wide(dqkv[heads.in_qkv(i) + c]) * wide(kept[i * heads.shape.head_dim + c]) * reciprocals[i];
  }
};

template <class T>
__global__ void head_norm_backward_kernel(Heads heads, const T* query_scale, const T* key_scale,
                                          const T* kept, const State<T>* reciprocals, T* dqkv) {
  using S = State<T>;
  const int64_t dim = heads.shape.head_dim;
  const int lane = int(threadIdx.x) % kWarp;
  for (int64_t i = grid_index() / kWarp; i < heads.count(); i += grid_stride() / kWarp) {
    T* const d = dqkv + heads.in_qkv(i);
    const T* const scale = heads.is_query(i) ? query_scale : key_scale;
    const S reciprocal = reciprocals[i];
    S sum = 0;
    for (int64_t c = lane; c < dim; c += kWarp)
      sum += wide(d[c]) * wide(scale[c]) * wide(kept[i * dim + c]) * reciprocal;
    const S mean = warp_reduce(sum, Sum()) / S(dim);
    for (int64_t c = lane; c < dim; c += kWarp) {
      const S xhat = wide(kept[i * dim + c]) * reciprocal;
      d[c] = narrow<T>((wide(d[c]) * wide(scale[c]) - xhat * mean) * reciprocal);
    }
  }
}

}  // namespace

int64_t column_scratch_bytes(int64_t rows, int64_t columns) {
  return 2 * chunks_of(rows) * columns * int64_t(sizeof(double));
}

template <class T>
void bias_backward(cudaStream_t stream, int64_t rows, int64_t columns, const T* dy, State<T>* dbias,
                   void* scratch) {
  column_sums<State<T>, 1>(stream, rows, columns, BiasGradient<T>{dy, columns}, scratch, {dbias});
}

template <class T>
void norm_forward(cudaStream_t stream, const NormShape& s, const T* x, const T* scale, const T* bias, T* y,
                  State<T>* statistics) {
  constexpr int kWidth = int(16 / sizeof(T));
  const bool packed = pack_width<T>(s.columns, x, scale, bias, y) > 1;
  launch(stream, dim3(unsigned(s.rows)), kThreads, 0,
         packed ? norm_forward_kernel<T, kWidth> : norm_forward_kernel<T, 1>, s, x, scale, bias, y,
         statistics);
}

template <class T>
void norm_backward_input(cudaStream_t stream, const NormShape& s, const T* dy, const T* x, const T* scale,
                         const State<T>* statistics, T* dx) {
  constexpr int kWidth = int(16 / sizeof(T));
  const bool packed = pack_width<T>(s.columns, dy, x, scale, dx) > 1;
  launch(stream, dim3(unsigned(s.rows)), kThreads, 0,
         packed ? norm_backward_input_kernel<T, kWidth> : norm_backward_input_kernel<T, 1>, s, dy, x, scale,
         statistics, dx);
}

template <class T>
void norm_backward_weight(cudaStream_t stream, const NormShape& s, const T* dy, const T* x,
                          const State<T>* statistics, State<T>* dscale, State<T>* dbias, void* scratch) {
  const NormWeightGradient<T> value{dy, x, statistics, s.rows, s.columns, s.kind == NormKind::layer_norm};
  column_sums<State<T>, 2>(stream, s.rows, s.columns, value, scratch, {dscale, dbias});
}

template <class T>
void head_norm_forward(cudaStream_t stream, const AttentionShape& s, double epsilon, const T* query_scale,
                       const T* key_scale, T* qkv, T* kept) {
  const Heads heads{s};
  launch(stream, blocks_for(s.tokens() * (s.heads + s.kv_heads) * kWarp), kThreads, 0,
         head_norm_forward_kernel<T>, heads, State<T>(epsilon), query_scale, key_scale, qkv, kept);
}

int64_t head_norm_scratch_bytes(const AttentionShape& s) {
  return s.tokens() * (s.heads + s.kv_heads) * int64_t(sizeof(double)) +
         column_scratch_bytes(s.tokens() * s.heads, s.head_dim);
}

template <class T>
void head_norm_backward(cudaStream_t stream, const AttentionShape& s, double epsilon, const T* query_scale,
                        const T* key_scale, const T* kept, T* dqkv, State<T>* dquery_scale,
                        State<T>* dkey_scale, void* scratch) {
  using S = State<T>;
  const Heads heads{s};
  const int64_t count = s.tokens() * (s.heads + s.kv_heads);
  S* const reciprocals = static_cast<S*>(scratch);
  void* const sums = static_cast<double*>(scratch) + count;
  launch(stream, blocks_for(count * kWarp), kThreads, 0, head_reciprocals_kernel<T>, heads, S(epsilon), kept,
         reciprocals);
  column_sums<S, 1>(stream, s.tokens() * s.heads, s.head_dim,
                    HeadScaleGradient<T>{heads, 0, s.heads, kept, dqkv, reciprocals}, sums, {dquery_scale});
  column_sums<S, 1>(stream, s.tokens() * s.kv_heads, s.head_dim,
                    HeadScaleGradient<T>{heads, s.heads, s.kv_heads, kept, dqkv, reciprocals}, sums,
                    {dkey_scale});
  launch(stream, blocks_for(count * kWarp), kThreads, 0, head_norm_backward_kernel<T>, heads, query_scale,
         key_scale, kept, reciprocals, dqkv);
}

#define MPT_INSTANTIATE(T)                                                                                  \
  template void bias_backward(cudaStream_t, int64_t, int64_t, const T*, State<T>*, void*);                  \
  template void norm_forward(cudaStream_t, const NormShape&, const T*, const T*, const T*, T*, State<T>*);  \
  template void norm_backward_input(cudaStream_t, const NormShape&, const T*, const T*, const T*,           \
                                    const State<T>*, T*);                                                   \
  template void norm_backward_weight(cudaStream_t, const NormShape&, const T*, const T*, const State<T>*,   \
                                     State<T>*, State<T>*, void*);                                          \
  template void head_norm_forward(cudaStream_t, const AttentionShape&, double, const T*, const T*, T*, T*); \
  template void head_norm_backward(cudaStream_t, const AttentionShape&, double, const T*, const T*,         \
                                   const T*, T*, State<T>*, State<T>*, void*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)
MPT_INSTANTIATE(Bfloat16)
MPT_INSTANTIATE(Half)

}  // namespace mpt::runtime::cuda
