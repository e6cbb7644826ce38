// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

// Rows per partial sum: enough blocks to fill a GPU at training shapes, but few partial sums.
constexpr int64_t kMostChunks = 128, kRowsPerChunk = 32;
constexpr int kChunkRows = 8;  // rows of threads in a block of a column sum

int64_t chunks_of(int64_t rows) {
  return std::max<int64_t>(1, std::min(kMostChunks, ceil_div(rows, kRowsPerChunk)));
}

// Sums over rows in two steps: partial sums of chunks of rows, then over chunks in order. For a row and W
// neighbouring columns, Value gives K values per column; each is summed over the rows.
template <class S, int K, int W, class Value>
__global__ void partial_column_sums(int64_t rows, int64_t columns, Value value, S* partial) {
  __shared__ S sums[K][kChunkRows][kWarp * W];
  const int64_t first = int64_t(blockIdx.x) * kWarp * W, column = first + int64_t(threadIdx.x) * W;
  const int64_t chunk = blockIdx.y, chunks = gridDim.y;
  S sum[K][W] = {};
  if (column < columns)
    for (int64_t r = rows * chunk / chunks + threadIdx.y; r < rows * (chunk + 1) / chunks; r += kChunkRows) {
      S values[K][W];
      value(r, column, values);
      for (int k = 0; k < K; ++k)
        for (int w = 0; w < W; ++w) sum[k][w] += values[k][w];
    }
  for (int k = 0; k < K; ++k)
    for (int w = 0; w < W; ++w) sums[k][threadIdx.y][threadIdx.x * W + w] = sum[k][w];
  __syncthreads();
  const int64_t thread = int64_t(threadIdx.y) * kWarp + threadIdx.x;
  if (thread >= kWarp * W || first + thread >= columns) return;
  for (int k = 0; k < K; ++k) {
    S total = 0;
    for (int y = 0; y < kChunkRows; ++y) total += sums[k][y][thread];
    partial[(k * chunks + chunk) * columns + first + thread] = total;
  }
}

template <class S>
__global__ void add_column_sums(int64_t chunks, int64_t columns, const S* partial, S* to) {
  __shared__ S sums[kChunkRows][kWarp];
  const int64_t column = int64_t(blockIdx.x) * kWarp + threadIdx.x;
  S sum = 0;
  if (column < columns)
    for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += kChunkRows)
      sum += partial[chunk * columns + column];
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  S total = 0;
  for (int y = 0; y < kChunkRows; ++y) total += sums[y][threadIdx.x];
  to[column] += total;
}

// to[k] may be null: that sum is not wanted.
template <class S, int K, int W, class Value>
void column_sums(cudaStream_t stream, int64_t rows, int64_t columns, const Value& value, void* scratch,
                 S* const (&to)[K]) {
  static_assert(W <= kChunkRows, "a thread adds up one column");
  const int64_t chunks = chunks_of(rows);
  S* const partial = static_cast<S*>(scratch);
  launch(stream, dim3(unsigned(ceil_div(columns, kWarp * W)), unsigned(chunks)), dim3(kWarp, kChunkRows), 0,
         partial_column_sums<S, K, W, Value>, rows, columns, value, partial);
  for (int k = 0; k < K; ++k) {
    if (to[k] == nullptr) continue;
    launch(stream, dim3(unsigned(ceil_div(columns, kWarp))), dim3(kWarp, kChunkRows), 0, add_column_sums<S>,
           chunks, columns, partial + k * chunks * columns, to[k]);
  }
}

template <class T, int W>
struct BiasGradient {
  const T* dy;
  int64_t columns;
  __device__ void operator()(int64_t r, int64_t c, State<T> (&values)[1][W]) const {
    const auto pack = load<W>(dy + r * columns + c);
    for (int w = 0; w < W; ++w) values[0][w] = wide(pack.at[w]);
  }
};

template <class T, int W>
struct NormWeightGradient {
  const T *dy, *x;
  const State<T>* statistics;
  int64_t rows, columns;
  bool centred;
  __device__ void operator()(int64_t r, int64_t c, State<T> (&values)[2][W]) const {
    const auto gradients = load<W>(dy + r * columns + c), inputs = load<W>(x + r * columns + c);
    const State<T> mean = centred ? statistics[r] : State<T>(0);
    const State<T> reciprocal = statistics[centred ? rows + r : r];
    for (int w = 0; w < W; ++w) {
      values[0][w] = wide(gradients.at[w]) * (wide(inputs.at[w]) - mean) * reciprocal;
      values[1][w] = wide(gradients.at[w]);
    }
  }
};

// A thread's part of a row: every blockDim.x-th pack of N elements. At most K packs stay in registers. With K
// = 0 the number is not limited, and packs are read again.
template <class T, int N, int K>
struct RowPart {
  const T* row;
  Pack<T, N> kept[K > 0 ? K : 1];  // NOLINT(bugprone-branch-clone): they are the same where K is 1

  __device__ Pack<T, N> at(int k, int64_t c) const { return K > 0 ? kept[k] : load<N>(row + c); }
};
template <int N, int K, class F>
__device__ void for_each_pack(int64_t columns, F&& body) {
  const int64_t first = int64_t(threadIdx.x) * N, stride = int64_t(blockDim.x) * N;
  if constexpr (K > 0) {
#pragma unroll
    for (int k = 0; k < K; ++k)
      if (first + k * stride < columns) body(k, first + k * stride);
  } else {
    for (int64_t c = first; c < columns; c += stride) body(0, c);
  }
}

// A block per row.
template <class T, int N, int K>
__global__ void norm_forward_kernel(NormShape s, const T* x, const T* residual, const T* scale, const T* bias,
                                    T* sum, T* y, State<T>* statistics) {
  using S = State<T>;
  const bool centred = s.kind == NormKind::layer_norm;
  const int64_t r = blockIdx.x, begin = r * s.columns;
  RowPart<T, N, K> row{(residual != nullptr ? sum : x) + begin, {}};
  S total = 0;
  for_each_pack<N, K>(s.columns, [&](int k, int64_t c) {
    auto pack = load<N>(x + begin + c);
    if (residual != nullptr) {
      const auto other = load<N>(residual + begin + c);
      for (int n = 0; n < N; ++n) pack.at[n] = narrow<T>(wide(pack.at[n]) + wide(other.at[n]));
      store(sum + begin + c, pack);
    }
    row.kept[k] = pack;
    for (int n = 0; n < N; ++n) total += wide(pack.at[n]);
  });
  const S mean = centred ? block_sum(total) / S(s.columns) : S(0);
  S squares = 0;
  for_each_pack<N, K>(s.columns, [&](int k, int64_t c) {
    const auto pack = row.at(k, c);
    for (int n = 0; n < N; ++n) {
      const S d = wide(pack.at[n]) - mean;
      squares += d * d;
    }
  });
  const S reciprocal = S(1) / sqrt(block_sum(squares) / S(s.columns) + S(s.epsilon));
  for_each_pack<N, K>(s.columns, [&](int k, int64_t c) {
    const auto pack = row.at(k, c), gain = load<N>(scale + c);
    Pack<T, N> shift{}, out;
    if (bias != nullptr) shift = load<N>(bias + c);
    for (int n = 0; n < N; ++n) {
      const S value = (wide(pack.at[n]) - mean) * reciprocal * wide(gain.at[n]);
      out.at[n] = narrow<T>(bias != nullptr ? value + wide(shift.at[n]) : value);
    }
    store(y + begin + c, out);
  });
  if (threadIdx.x != 0) return;
  if (centred) statistics[r] = mean;
  statistics[centred ? s.rows + r : r] = reciprocal;
}

// dx = reciprocal * (g - mean(g) - xhat * mean(g * xhat)) with g = dy * scale; rms norm has no mean(g).
template <class T, int N, int K>
__global__ void norm_backward_input_kernel(NormShape s, const T* dy, const T* x, const T* scale,
                                           const State<T>* statistics, const T* residual, T* dx) {
  using S = State<T>;
  const bool centred = s.kind == NormKind::layer_norm;
  const int64_t r = blockIdx.x, begin = r * s.columns;
  const S mean = centred ? statistics[r] : S(0), reciprocal = statistics[centred ? s.rows + r : r];
  RowPart<T, N, K> gradients{dy + begin, {}}, inputs{x + begin, {}};
  S sum_g = 0, sum_gx = 0;
  for_each_pack<N, K>(s.columns, [&](int k, int64_t c) {
    const auto d = load<N>(dy + begin + c), v = load<N>(x + begin + c), gain = load<N>(scale + c);
    gradients.kept[k] = d;
    inputs.kept[k] = v;
    for (int n = 0; n < N; ++n) {
      const S g = wide(d.at[n]) * wide(gain.at[n]);
      sum_g += g;
      sum_gx += g * (wide(v.at[n]) - mean) * reciprocal;
    }
  });
  const S mean_g = centred ? block_sum(sum_g) / S(s.columns) : S(0);
  const S mean_gx = block_sum(sum_gx) / S(s.columns);
  for_each_pack<N, K>(s.columns, [&](int k, int64_t c) {
    const auto d = gradients.at(k, c), v = inputs.at(k, c), gain = load<N>(scale + c);
    Pack<T, N> beside{}, out;
    if (residual != nullptr) beside = load<N>(residual + begin + c);
    for (int n = 0; n < N; ++n) {
      const S g = wide(d.at[n]) * wide(gain.at[n]), xhat = (wide(v.at[n]) - mean) * reciprocal;
      const S through = (g - mean_g - xhat * mean_gx) * reciprocal;
      out.at[n] = narrow<T>(residual != nullptr ? through + wide(beside.at[n]) : through);
    }
    store(dx + begin + c, out);
  });
}

// Calls `body` with the sizes for rows of this width: elements of a pack, and packs of a thread.
template <class T, class F>
void with_row_parts(int64_t columns, bool packed, F&& body) {
  constexpr int kWidth = int(16 / sizeof(T));
  constexpr int64_t kMostWarps = 16;
  const int64_t packs = packed ? columns / kWidth : columns;
  const auto threads = int(std::clamp<int64_t>(ceil_div(packs, kWarp), 1, kMostWarps) * kWarp);
  const int64_t each = ceil_div(packs, threads);
  using std::integral_constant;
  if (!packed) return body(threads, integral_constant<int, 1>(), integral_constant<int, 0>());
  if (each == 1) return body(threads, integral_constant<int, kWidth>(), integral_constant<int, 1>());
  if (each == 2) return body(threads, integral_constant<int, kWidth>(), integral_constant<int, 2>());
  if (each <= 4) return body(threads, integral_constant<int, kWidth>(), integral_constant<int, 4>());
  body(threads, integral_constant<int, kWidth>(), integral_constant<int, 0>());
}

// The position of head h of token t in qkv, and in the kept copy of its queries and keys. A warp per head
// below.
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

// Sums over tokens and over the heads [first_head, first_head + heads).
template <class T>
struct HeadScaleGradient {
  Heads heads;
  int64_t first_head, head_count;
  const T *kept, *dqkv;
  const State<T>* reciprocals;
  __device__ void operator()(int64_t row, int64_t c, State<T> (&values)[1][1]) const {
    const int64_t normed = heads.shape.heads + heads.shape.kv_heads;
    const int64_t i = row / head_count * normed + first_head + row % head_count;
    values[0][0] =
        wide(dqkv[heads.in_qkv(i) + c]) * wide(kept[i * heads.shape.head_dim + c]) * reciprocals[i];
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

int64_t column_scratch_bytes(int64_t rows, int64_t columns) {
  return 2 * chunks_of(rows) * columns * int64_t(sizeof(double));
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const BiasBackward& o) {
  const Scratch sums(gpu.streams(), column_scratch_bytes(o.rows, o.columns));
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(o.columns, o.dy), [&](auto width) {
      const BiasGradient<T, width()> value{as<T>(o.dy), o.columns};
      column_sums<S, 1, width()>(gpu.stream(), o.rows, o.columns, value, sums.data(), {as<S>(o.dbias)});
    });
  });
}

void run(StreamDevice& gpu, DataType type, const NormForward& o) {
  const NormShape& s = o.shape;
  MPT_DISPATCH(type, {
    const bool packed = in_packs<T>(s.columns, o.x, o.residual, o.scale, o.bias, o.sum, o.y);
    with_row_parts<T>(s.columns, packed, [&](int threads, auto width, auto packs) {
      launch(gpu.stream(), dim3(unsigned(s.rows)), threads, 0, norm_forward_kernel<T, width(), packs()>, s,
             o.x, o.residual, o.scale, o.bias, o.sum, o.y, o.statistics);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const NormBackwardInput& o) {
  const NormShape& s = o.shape;
  MPT_DISPATCH(type, {
    const bool packed = in_packs<T>(s.columns, o.dy, o.x, o.scale, o.residual, o.dx);
    with_row_parts<T>(s.columns, packed, [&](int threads, auto width, auto packs) {
      launch(gpu.stream(), dim3(unsigned(s.rows)), threads, 0,
             norm_backward_input_kernel<T, width(), packs()>, s, o.dy, o.x, o.scale, o.statistics, o.residual,
             o.dx);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const NormBackwardWeight& o) {
  const NormShape& s = o.shape;
  const bool centred = s.kind == NormKind::layer_norm;
  const Scratch sums(gpu.streams(), column_scratch_bytes(s.rows, s.columns));
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(s.columns, o.dy, o.x), [&](auto width) {
      const NormWeightGradient<T, width()> value{as<T>(o.dy), as<T>(o.x), as<S>(o.statistics),
                                                 s.rows,      s.columns,  centred};
      column_sums<S, 2, width()>(gpu.stream(), s.rows, s.columns, value, sums.data(),
                                 {as<S>(o.dscale), as<S>(o.dbias)});
    });
  });
}

void run(StreamDevice& gpu, DataType type, const HeadNormForward& o) {
  const AttentionShape& s = o.shape;
  MPT_DISPATCH(type, launch_each(gpu.stream(), s.tokens() * (s.heads + s.kv_heads) * kWarp,
                                 head_norm_forward_kernel<T>, Heads{s}, o.epsilon, o.query_scale, o.key_scale,
                                 o.qkv, o.kept));
}

void run(StreamDevice& gpu, DataType type, const HeadNormBackward& o) {
  const AttentionShape& s = o.shape;
  const cudaStream_t stream = gpu.stream();
  const Heads heads{s};
  const int64_t count = s.tokens() * (s.heads + s.kv_heads);
  const Scratch room(gpu.streams(), count * int64_t(sizeof(double)) +
                                        column_scratch_bytes(s.tokens() * s.heads, s.head_dim));
  void* const sums = as<double>(room.data()) + count;
  MPT_DISPATCH(type, {
    S* const reciprocals = as<S>(room.data());
    const auto sum_scales = [&](int64_t first, int64_t of_token, void* to) {
      const HeadScaleGradient<T> value{heads, first, of_token, as<T>(o.kept), as<T>(o.dqkv), reciprocals};
      column_sums<S, 1, 1>(stream, s.tokens() * of_token, s.head_dim, value, sums, {as<S>(to)});
    };
    launch_each(stream, count * kWarp, head_reciprocals_kernel<T>, heads, o.epsilon, o.kept, reciprocals);
    sum_scales(0, s.heads, o.dquery_scale);
    sum_scales(s.heads, s.kv_heads, o.dkey_scale);
    launch_each(stream, count * kWarp, head_norm_backward_kernel<T>, heads, o.query_scale, o.key_scale,
                o.kept, reciprocals, o.dqkv);
  });
}

}  // namespace mpt::runtime::cuda
