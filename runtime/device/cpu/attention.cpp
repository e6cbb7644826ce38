// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/kernels.h"

namespace mpt::runtime::cpu {
namespace {

// Query rows handled at once: their scores against all earlier keys fit the cache, and blocks above the
// diagonal are never computed. The [s, s] matrix is never stored (Dao et al. 2022, arXiv:2205.14135).
constexpr int64_t kQueryBlock = 48;

// Views of one query head and its key-value head inside the packed rows of one sequence.
template <class T, class Pointer>
struct HeadViews {
  using View = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, ConstStridedView<T>,
                                  StridedView<T>>;
  HeadViews(const AttentionShape& s, Pointer qkv, int64_t batch, int64_t head)
      : q(at(s, qkv, batch, head)),
        k(at(s, qkv, batch, s.heads + head / (s.heads / s.kv_heads))),
        v(at(s, qkv, batch, s.heads + s.kv_heads + head / (s.heads / s.kv_heads))) {}
  View q, k, v;

 private:
  static View at(const AttentionShape& s, Pointer qkv, int64_t batch, int64_t slot) {
    return View(qkv + batch * s.sequence * s.row() + slot * s.head_dim, s.sequence, s.head_dim,
                Eigen::OuterStride<>(s.row()));
  }
};

template <class T>
ConstStridedView<T> head_of(const AttentionShape& s, const T* data, int64_t batch, int64_t head) {
  const int64_t stride = s.heads * s.head_dim;
  return ConstStridedView<T>(data + batch * s.sequence * stride + head * s.head_dim, s.sequence, s.head_dim,
                             Eigen::OuterStride<>(stride));
}

// Whole vectors that hold the `visible` of `keys` scores: a rest would be computed one by one. What is
// computed of hidden scores must be set to zero.
int64_t whole_vectors(int64_t visible, int64_t keys) {
  constexpr int64_t kMost = 16;
  return std::min(keys, (visible + kMost - 1) / kMost * kMost);
}

struct QueryBlock {
  int64_t first, rows, keys;  // keys 0 .. keys-1 are visible to some row of the block
};

// `visible(i)`: how many keys query i sees; the last of a block sees most.
template <class Visible, class F>
void for_each_block(int64_t queries, Visible&& visible, F&& body) {
  for (int64_t first = 0; first < queries; first += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, queries - first);
    const int64_t keys = visible(first + rows - 1);
    if (keys > 0) body(QueryBlock{first, rows, keys});
  }
}

// Of one sequence on its own: a query sees itself and what is before it.
int64_t visible_in_order(int64_t query) { return query + 1; }

// The backward pass of one head after the other. With P = softmax(S): dV = P^T dO,
// dS = P (dO V^T - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q.
template <class T>
class HeadBackward {
 public:
  HeadBackward(const AttentionShape& s, int64_t keys)
      : scale_(T(1) / std::sqrt(T(s.head_dim))),
        probability_(std::min(kQueryBlock, s.sequence), keys),
        gradient_(probability_.rows(), keys) {}

  // `visible(i)`: how many keys query i sees, the first ones. Adds to d_q, d_k and d_v.
  template <class F>
  void add(const ConstStridedView<T>& q, const ConstStridedView<T>& k, const ConstStridedView<T>& v,
           const ConstStridedView<T>& out, const ConstStridedView<T>& d_out, const T* log_sum_exp,
           F&& visible, StridedView<T>& d_q, StridedView<T>& d_k, StridedView<T>& d_v) {
    for_each_block(q.rows(), visible, [&](const QueryBlock& block) {
      auto p = probability_.topLeftCorner(block.rows, block.keys);
      auto g = gradient_.topLeftCorner(block.rows, block.keys);
      const auto q_rows = q.middleRows(block.first, block.rows);
      const auto d_rows = d_out.middleRows(block.first, block.rows);
      p.noalias() = q_rows * k.topRows(block.keys).transpose();
      g.noalias() = d_rows * v.topRows(block.keys).transpose();
      for (int64_t i = 0; i < block.rows; ++i) {
        const int64_t seen = visible(block.first + i), whole = whole_vectors(seen, block.keys);
        auto row = p.row(i).head(whole).array();
        row = (row * scale_ - log_sum_exp[block.first + i]).exp();
        p.row(i).tail(block.keys - seen).setZero();
        const T delta = d_rows.row(i).dot(out.row(block.first + i));
        g.row(i).head(whole).array() = (g.row(i).head(whole).array() - delta) * row * scale_;
        g.row(i).tail(block.keys - whole).setZero();
      }
      d_v.topRows(block.keys).noalias() += p.transpose() * d_rows;
      d_q.middleRows(block.first, block.rows).noalias() += g * k.topRows(block.keys);
      d_k.topRows(block.keys).noalias() += g.transpose() * q_rows;
    });
  }

 private:
  T scale_;
  RowMatrix<T> probability_, gradient_;
};

}  // namespace

template <class T>
void attention_forward(const AttentionShape& s, const T* qkv, T* out, T* log_sum_exp) {
  const T scale = T(1) / std::sqrt(T(s.head_dim));
  RowMatrix<T> scores(std::min(kQueryBlock, s.sequence), s.sequence);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const HeadViews<T, const T*> head(s, qkv, b, h);
      StridedView<T> o(out + (b * s.sequence * s.heads + h) * s.head_dim, s.sequence, s.head_dim,
                       Eigen::OuterStride<>(s.heads * s.head_dim));
      T* lse = log_sum_exp + (b * s.heads + h) * s.sequence;
      for_each_block(s.sequence, visible_in_order, [&](const QueryBlock& block) {
        auto p = scores.topLeftCorner(block.rows, block.keys);
        p.noalias() = head.q.middleRows(block.first, block.rows) * head.k.topRows(block.keys).transpose();
        for (int64_t i = 0; i < block.rows; ++i) {
          const int64_t visible = visible_in_order(block.first + i);
          auto row = p.row(i).head(whole_vectors(visible, block.keys)).array();
          const T maximum = p.row(i).head(visible).maxCoeff() * scale;
          row = (row * scale - maximum).exp();
          p.row(i).tail(block.keys - visible).setZero();
          const T sum = row.sum();
          row *= T(1) / sum;
          lse[block.first + i] = maximum + std::log(sum);
        }
        o.middleRows(block.first, block.rows).noalias() = p * head.v.topRows(block.keys);
      });
    }
  }
}

template <class T>
void attention_backward(const AttentionShape& s, const T* dout, const T* qkv, const T* out,
                        const T* log_sum_exp, T* dqkv) {
  HeadBackward<T> backward(s, s.sequence);
  std::fill_n(dqkv, s.batch * s.sequence * s.row(), T(0));
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const HeadViews<T, const T*> head(s, qkv, b, h);
      HeadViews<T, T*> gradients(s, dqkv, b, h);
      backward.add(head.q, head.k, head.v, head_of(s, out, b, h), head_of(s, dout, b, h),
                   log_sum_exp + (b * s.heads + h) * s.sequence, visible_in_order, gradients.q, gradients.k,
                   gradients.v);
    }
  }
}

namespace {

// One head of `data` [b*rows, stride], at column `column`.
template <class T>
ConstStridedView<T> columns_of(const T* data, int64_t batch, int64_t rows, int64_t stride, int64_t column,
                               int64_t width) {
  return ConstStridedView<T>(data + batch * rows * stride + column, rows, width,
                             Eigen::OuterStride<>(stride));
}
template <class T>
StridedView<T> columns_of(T* data, int64_t batch, int64_t rows, int64_t stride, int64_t column,
                          int64_t width) {
  return StridedView<T>(data + batch * rows * stride + column, rows, width, Eigen::OuterStride<>(stride));
}

// The operands of one head of one sequence against a block of keys.
template <class T>
struct BlockHead {
  BlockHead(const AttentionBlock& block, const T* qkv, const T* kv, int64_t batch, int64_t head)
      : key_head(head / (block.shape.heads / block.shape.kv_heads)),
        q(columns_of(qkv, batch, block.shape.sequence, block.shape.row(), head * block.shape.head_dim,
                     block.shape.head_dim)),
        k(columns_of(kv, batch, block.keys, 2 * block.shape.kv_heads * block.shape.head_dim,
                     key_head * block.shape.head_dim, block.shape.head_dim)),
        v(columns_of(kv, batch, block.keys, 2 * block.shape.kv_heads * block.shape.head_dim,
                     (block.shape.kv_heads + key_head) * block.shape.head_dim, block.shape.head_dim)) {}
  int64_t key_head;
  ConstStridedView<T> q, k, v;
};

auto visible_in(const AttentionBlock& block) {
  return [&block](int64_t query) { return block.visible[size_t(query)]; };
}

}  // namespace

// A block's own softmax, joined to the earlier ones' by their log-sum-exps.
template <class T>
void attention_block_forward(const AttentionBlock& block, const T* qkv, const T* kv, bool first, T* out,
                             T* log_sum_exp) {
  const AttentionShape& s = block.shape;
  const T scale = T(1) / std::sqrt(T(s.head_dim));
  if (first) {
    std::fill_n(out, s.tokens() * s.heads * s.head_dim, T(0));
    std::fill_n(log_sum_exp, s.tokens() * s.heads, -std::numeric_limits<T>::infinity());
  }
  RowMatrix<T> scores(std::min(kQueryBlock, s.sequence), block.keys), part(scores.rows(), s.head_dim);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const BlockHead<T> head(block, qkv, kv, b, h);
      auto o = columns_of(out, b, s.sequence, s.heads * s.head_dim, h * s.head_dim, s.head_dim);
      T* lse = log_sum_exp + (b * s.heads + h) * s.sequence;
      for_each_block(s.sequence, visible_in(block), [&](const QueryBlock& queries) {
        auto p = scores.topLeftCorner(queries.rows, queries.keys);
        p.noalias() =
            head.q.middleRows(queries.first, queries.rows) * head.k.topRows(queries.keys).transpose();
        for (int64_t i = 0; i < queries.rows; ++i) {
          const int64_t visible = block.visible[size_t(queries.first + i)];
          auto row = p.row(i).head(whole_vectors(visible, queries.keys)).array();
          const T maximum = visible > 0 ? p.row(i).head(visible).maxCoeff() * scale : T(0);
          row = (row * scale - maximum).exp();
          p.row(i).tail(queries.keys - visible).setZero();
          if (visible == 0) continue;
          const T own = maximum + std::log(row.sum());
          T& joined = lse[queries.first + i];
          const T high = std::max(own, joined);
          const T sum = high + std::log(std::exp(own - high) + std::exp(joined - high));
          row *= std::exp(maximum - sum);
          o.row(queries.first + i) *= std::exp(joined - sum);
          joined = sum;
        }
        auto added = part.topRows(queries.rows);
        added.noalias() = p * head.v.topRows(queries.keys);
        o.middleRows(queries.first, queries.rows) += added;
      });
    }
  }
}

template <class T>
void attention_block_backward(const AttentionBlock& block, const T* dout, const T* qkv, const T* kv,
                              const T* out, const T* log_sum_exp, T* dq, T* dkv) {
  const AttentionShape& s = block.shape;
  const int64_t width = s.heads * s.head_dim, kv_width = 2 * s.kv_heads * s.head_dim;
  HeadBackward<T> backward(s, block.keys);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const BlockHead<T> head(block, qkv, kv, b, h);
      auto d_q = columns_of(dq, b, s.sequence, width, h * s.head_dim, s.head_dim);
      auto d_k = columns_of(dkv, b, block.keys, kv_width, head.key_head * s.head_dim, s.head_dim);
      auto d_v =
          columns_of(dkv, b, block.keys, kv_width, (s.kv_heads + head.key_head) * s.head_dim, s.head_dim);
      backward.add(head.q, head.k, head.v, columns_of(out, b, s.sequence, width, h * s.head_dim, s.head_dim),
                   columns_of(dout, b, s.sequence, width, h * s.head_dim, s.head_dim),
                   log_sum_exp + (b * s.heads + h) * s.sequence, visible_in(block), d_q, d_k, d_v);
    }
  }
}

// Su et al. 2021 (arXiv:2104.09864), in the half-split arrangement of Llama's published weights.
template <class T>
void rotary(const AttentionShape& s, const Rotation& rotation, int direction, T* qkv) {
  const auto half = int64_t(rotation.frequencies.size());
  Eigen::Array<T, Eigen::Dynamic, 1> cosine(half), sine(half), first(half);
  for (int64_t token = 0; token < s.sequence; ++token) {
    for (int64_t i = 0; i < half; ++i) {
      const double angle = double(rotation.positions[size_t(token)]) * rotation.frequencies[size_t(i)];
      cosine[i] = T(std::cos(angle));
      sine[i] = T(std::sin(angle) * direction);
    }
    for (int64_t b = 0; b < s.batch; ++b) {
      T* row = qkv + (b * s.sequence + token) * s.row();
      for (int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
        ArrayView<T> x(row + head * s.head_dim, half), y(row + head * s.head_dim + half, half);
        first = x;
        x = first * cosine - y * sine;
        y = y * cosine + first * sine;
      }
    }
  }
}

#define MPT_INSTANTIATE(T)                                                                              \
  template void attention_forward(const AttentionShape&, const T*, T*, T*);                             \
  template void attention_backward(const AttentionShape&, const T*, const T*, const T*, const T*, T*);  \
  template void attention_block_forward(const AttentionBlock&, const T*, const T*, bool, T*, T*);       \
  template void attention_block_backward(const AttentionBlock&, const T*, const T*, const T*, const T*, \
                                         const T*, T*, T*);                                             \
  template void rotary(const AttentionShape&, const Rotation&, int, T*);
MPT_INSTANTIATE(float)
MPT_INSTANTIATE(double)

}  // namespace mpt::runtime::cpu
