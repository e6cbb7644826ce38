// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"
#include "runtime/device/cuda/word_list.h"

namespace mpt::runtime::cuda {
namespace {

// Tokens by their word. The tokens of words[w], a row of the table, are tokens[starts[w]] .. tokens[starts[w
// + 1] - 1].
struct WordList {
  int64_t count = 0;  // of words
  const int32_t *words = nullptr, *starts = nullptr, *tokens = nullptr;
};

// A block per token.
template <class T, int N>
__global__ void embedding_forward_kernel(int64_t hidden, int64_t first, int64_t rows, const int32_t* ids,
                                         const T* table, T* y) {
  const int64_t t = blockIdx.x, row = ids[t] - first;
  const bool here = row >= 0 && row < rows;
  for (int64_t c = threadIdx.x * N; c < hidden; c += int64_t(blockDim.x) * N)
    store(y + t * hidden + c, here ? load<N>(table + row * hidden + c) : Pack<T, N>{});
}

// A block per word that occurs. The list has a word's tokens together, in their own order. One thread
// computes each sum, so it is the same in every run. A thread has N columns.
template <class T, int N>
__global__ void embedding_backward_kernel(WordList list, int64_t hidden, const T* dy, State<T>* dtable) {
  using S = State<T>;
  const int64_t word = blockIdx.x, begin = list.starts[word], end = list.starts[word + 1];
  S* const row = dtable + int64_t(list.words[word]) * hidden;
  for (int64_t c = int64_t(threadIdx.x) * N; c < hidden; c += int64_t(blockDim.x) * N) {
    S sum[N] = {};
#pragma unroll 4
    for (int64_t i = begin; i < end; ++i) {
      const auto pack = load<N>(dy + int64_t(list.tokens[i]) * hidden + c);
      for (int n = 0; n < N; ++n) sum[n] += wide(pack.at[n]);
    }
    for (int n = 0; n < N; ++n) row[c + n] += sum[n];
  }
}

template <class T>
__global__ void position_forward_kernel(int64_t count, int64_t hidden, const int32_t* positions,
                                        const T* table, T* y) {
  for (int64_t i = grid_index(); i < count; i += grid_stride())
    y[i] = narrow<T>(wide(y[i]) + wide(table[positions[i / hidden] * hidden + i % hidden]));
}

// Su et al. 2021 (arXiv:2104.09864), in the half-split arrangement of Llama's published weights. Angles grow
// with the position. So they are reduced to less than a turn in double, before sine and cosine are computed
// in float.
template <class T>
__global__ void rotary_kernel(AttentionShape s, int64_t half, const double* frequencies,
                              const int32_t* positions, double factor, int direction, T* qkv) {
  using S = State<T>;
  constexpr double kTurn = 6.283185307179586;
  const int64_t turned = s.heads + s.kv_heads;
  for (int64_t i = grid_index(); i < s.tokens() * half; i += grid_stride()) {
    const int64_t token = i / half, pair = i % half;
    double exact = double(positions[token % s.sequence]) * frequencies[pair];
    if (sizeof(S) == sizeof(float)) exact -= floor(exact / kTurn) * kTurn;
    const S angle = S(exact);
    const S cosine = cos(angle) * S(factor), sine = sin(angle) * S(factor) * S(direction);
    T* const row = qkv + token * s.row() + pair;
    for (int64_t head = 0; head < turned; ++head) {
      T* const at = row + head * s.head_dim;
      const S x = wide(at[0]), y = wide(at[half]);
      at[0] = narrow<T>(x * cosine - y * sine);
      at[half] = narrow<T>(y * cosine + x * sine);
    }
  }
}

void table_gradient(StreamDevice& gpu, DataType type, const SortedWords& sorted, const int32_t* numbers,
                    int64_t hidden, const void* dy, void* dtable) {
  const int64_t words = sorted.words();
  const WordList list{words, numbers, numbers + words, numbers + 2 * words + 1};
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(hidden, dy), [&](auto width) {
      const int64_t warps = ceil_div(hidden / width(), kWarp);
      const auto threads = int(std::clamp<int64_t>(warps, 1, kThreads / kWarp) * kWarp);
      launch(gpu.stream(), dim3(unsigned(words)), threads, 0, embedding_backward_kernel<T, width()>, list,
             hidden, dy, dtable);
    });
  });
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const EmbeddingForward& o) {
  const TableShape& s = o.shape;
  const StreamDevice::Numbers ids(gpu, o.ids, s.tokens);
  MPT_DISPATCH(type, {
    with_packs<T>(in_packs<T>(s.hidden, o.table, o.y), [&](auto width) {
      launch(gpu.stream(), dim3(unsigned(s.tokens)), kThreads, 0, embedding_forward_kernel<T, width()>,
             s.hidden, s.first, s.rows, ids.data(), o.table, o.y);
    });
  });
}

void run(StreamDevice& gpu, DataType type, const EmbeddingBackward& o) {
  const TableShape& s = o.shape;
  const SortedWords sorted(o.ids, s.tokens, s.first, s.rows);
  const StreamDevice::Numbers numbers(gpu, sorted.numbers().data(), int64_t(sorted.numbers().size()));
  table_gradient(gpu, type, sorted, numbers.data(), s.hidden, o.dy, o.dtable);
}

void run(StreamDevice& gpu, DataType type, const PositionForward& o) {
  const int64_t count = o.tokens * o.hidden;
  const int32_t* const positions = gpu.kept_list(o.positions, o.tokens);
  MPT_DISPATCH(type, launch_each(gpu.stream(), count, position_forward_kernel<T>, count, o.hidden, positions,
                                 o.table, o.y));
}

void run(StreamDevice& gpu, DataType type, const PositionBackward& o) {
  const int64_t rows = o.tokens == 0 ? 0 : 1 + *std::max_element(o.positions, o.positions + o.tokens);
  const SortedWords sorted(o.positions, o.tokens, 0, rows);
  const auto count = int64_t(sorted.numbers().size());
  table_gradient(gpu, type, sorted, gpu.kept_list(sorted.numbers().data(), count), o.hidden, o.dy, o.dtable);
}

void run(StreamDevice& gpu, DataType type, const Rotate& o) {
  const Rotation& r = o.rotation;
  const auto half = int64_t(r.frequencies.size());
  const double* const frequencies = gpu.kept_list(r.frequencies.data(), half);
  const int32_t* const positions = gpu.kept_list(r.positions.data(), o.shape.sequence);
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.shape.tokens() * half, rotary_kernel<T>, o.shape, half,
                                 frequencies, positions, r.factor, o.direction, o.qkv));
}

}  // namespace mpt::runtime::cuda
