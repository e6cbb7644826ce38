// SPDX-License-Identifier: Apache-2.0
#include "runtime/device/cuda/element.cuh"
#include "runtime/device/cuda/operators.h"

namespace mpt::runtime::cuda {
namespace {

struct Turns {
  const double* frequencies;
  const int32_t* positions;
  double factor;
  int64_t half;
  int direction;

  /// Element i of `from`, which has 2 half elements, rotated for this token of a sequence.
  template <class T>
  __device__ State<T> turned(const T* from, int64_t i, int64_t token) const {
    using S = State<T>;
    const int64_t pair = i % half;
    constexpr double kTurn = 6.283185307179586;
    double exact = double(positions[token]) * frequencies[pair];
    if (sizeof(S) == sizeof(float)) exact -= floor(exact / kTurn) * kTurn;
    const S angle = S(exact);
    const S cosine = cos(angle) * S(factor), sine = sin(angle) * S(factor * direction);
    const S a = wide(from[pair]), b = wide(from[pair + half]);
    return i < half ? a * cosine - b * sine : b * cosine + a * sine;
  }
};

// A thread per element of qkv: queries of all heads, keys, values.
template <class T>
__global__ void latent_join_kernel(LatentShape s, Turns turns, const T* q, const T* expanded, const T* key,
                                   T* qkv) {
  const int64_t dim = s.key_dim(), queries = s.heads * dim, width = s.nope + s.values;
  for (int64_t i = grid_index(); i < s.tokens() * s.row(); i += grid_stride()) {
    const int64_t t = i / s.row(), column = i % s.row(), token = t % s.sequence;
    if (column >= 2 * queries) {
      const int64_t c = column - 2 * queries;
      qkv[i] = expanded[(t * s.heads + c / s.values) * width + s.nope + c % s.values];
      continue;
    }
    const bool is_key = column >= queries;
    const int64_t head = column % queries / dim, c = column % dim;
    if (c < s.nope) {
      qkv[i] = is_key ? expanded[(t * s.heads + head) * width + c] : q[t * queries + head * dim + c];
    } else {
      const T* const from = is_key ? key + t * s.rope : q + t * queries + head * dim + s.nope;
      qkv[i] = narrow<T>(turns.turned(from, c - s.nope, token));
    }
  }
}

template <class T>
__global__ void latent_split_kernel(LatentShape s, Turns turns, const T* dqkv, T* dq, T* dexpanded) {
  const int64_t dim = s.key_dim(), queries = s.heads * dim, width = s.nope + s.values;
  for (int64_t i = grid_index(); i < s.tokens() * s.row(); i += grid_stride()) {
    const int64_t t = i / s.row(), column = i % s.row(), token = t % s.sequence;
    if (column >= 2 * queries) {
      const int64_t c = column - 2 * queries;
      dexpanded[(t * s.heads + c / s.values) * width + s.nope + c % s.values] = dqkv[i];
      continue;
    }
    const bool is_key = column >= queries;
    const int64_t head = column % queries / dim, c = column % dim;
    if (is_key && c < s.nope)
      dexpanded[(t * s.heads + head) * width + c] = dqkv[i];
    else if (!is_key)
      dq[t * queries + column] =
          c < s.nope ? dqkv[i] : narrow<T>(turns.turned(dqkv + i - c + s.nope, c - s.nope, token));
  }
}

// A thread per element of the shared key: the sum over heads.
template <class T>
__global__ void latent_key_kernel(LatentShape s, Turns turns, const T* dqkv, T* dkey) {
  const int64_t dim = s.key_dim();
  for (int64_t i = grid_index(); i < s.tokens() * s.rope; i += grid_stride()) {
    const int64_t t = i / s.rope;
    State<T> sum = 0;
    for (int64_t head = 0; head < s.heads; ++head)
      sum += turns.turned(dqkv + t * s.row() + (s.heads + head) * dim + s.nope, i % s.rope, t % s.sequence);
    dkey[i] = narrow<T>(sum);
  }
}

// `direction` -1 reverses the rotation.
Turns turns_of(StreamDevice& gpu, const LatentShape& s, const Rotation& r, int direction) {
  return {gpu.kept_list(r.frequencies.data(), int64_t(r.frequencies.size())),
          gpu.kept_list(r.positions.data(), int64_t(r.positions.size())), r.factor, s.rope / 2, direction};
}

}  // namespace

void run(StreamDevice& gpu, DataType type, const LatentJoin& o) {
  const Turns turns = turns_of(gpu, o.shape, o.rotation, +1);
  MPT_DISPATCH(type, launch_each(gpu.stream(), o.shape.tokens() * o.shape.row(), latent_join_kernel<T>,
                                 o.shape, turns, o.q, o.expanded, o.key, o.qkv));
}

void run(StreamDevice& gpu, DataType type, const LatentSplit& o) {
  const LatentShape& s = o.shape;
  const Turns turns = turns_of(gpu, s, o.rotation, -1);
  MPT_DISPATCH(type, {
    launch_each(gpu.stream(), s.tokens() * s.row(), latent_split_kernel<T>, s, turns, o.dqkv, o.dq,
                o.dexpanded);
    launch_each(gpu.stream(), s.tokens() * s.rope, latent_key_kernel<T>, s, turns, o.dqkv, o.dkey);
  });
}

}  // namespace mpt::runtime::cuda
