// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

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
      : q(at(s, qkv, batch, head * s.head_dim, s.head_dim)),
        k(at(s, qkv, batch, (s.heads + head / (s.heads / s.kv_heads)) * s.head_dim, s.head_dim)),
        v(at(s, qkv, batch, s.rotated() + head / (s.heads / s.kv_heads) * s.values(), s.values())) {}
  View q, k, v;

 private:
  static View at(const AttentionShape& s, Pointer qkv, int64_t batch, int64_t column, int64_t width) {
    return View(qkv + batch * s.sequence * s.row() + column, s.sequence, width,
                Eigen::OuterStride<>(s.row()));
  }
};

template <class T>
ConstStridedView<T> head_of(const AttentionShape& s, const T* data, int64_t batch, int64_t head) {
  const int64_t stride = s.outputs();
  return ConstStridedView<T>(data + batch * s.sequence * stride + head * s.values(), s.sequence, s.values(),
                             Eigen::OuterStride<>(stride));
}

// Whole vectors that hold the `visible` of `keys` scores: a rest would be computed one by one. What is
// computed of hidden scores must be set to zero.
int64_t whole_vectors(int64_t visible, int64_t keys) {
  constexpr int64_t kMost = 16;
  return std::min(keys, (visible + kMost - 1) / kMost * kMost);
}

// Keys that a query sees: `from` .. `to` - 1.
struct Seen {
  int64_t from, to;
};

struct QueryBlock {
  int64_t first, rows, from, keys;  // keys from .. from + keys - 1 are seen by some row of the block
  /// Of row i: what it sees of the block's keys.
  Seen within(const Seen& seen) const { return {seen.from - from, seen.to - from}; }
};

// `seen(i)`: what query i sees; both ends rise.
template <class F, class SeenBy>
void for_each_block(int64_t queries, SeenBy&& seen, F&& body) {
  for (int64_t first = 0; first < queries; first += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, queries - first);
    const int64_t from = seen(first).from, keys = seen(first + rows - 1).to - from;
    if (keys > 0) body(QueryBlock{first, rows, from, keys});
  }
}

// Of one sequence on its own: a query sees itself and what is before it, within its window.
auto seen_in_order(const AttentionShape& s) {
  return [window = s.window](int64_t query) {
    return Seen{window > 0 ? std::max<int64_t>(0, query + 1 - window) : 0, query + 1};
  };
}

// What a score makes of the product of a query and a key.
template <class T>
struct Scores {
  explicit Scores(const AttentionShape& s) : scale(T(s.score_scale())), cap(T(s.cap)) {}

  template <class Row>
  void to_capped(Row&& row) const {
    row = cap * (row * (scale / cap)).tanh();
  }
  // Products of keys 0 .. `seen.to` become exponentials, by the largest score seen, which is returned.
  template <class Row>
  T to_exponentials(Row&& products, const Seen& seen, int64_t keys) const {
    auto row = products.head(whole_vectors(seen.to, keys)).array();
    const auto visible = products.segment(seen.from, seen.to - seen.from);
    if (cap > T(0)) to_capped(row);
    const T factor = cap > T(0) ? T(1) : scale, maximum = visible.maxCoeff() * factor;
    row = (row * factor - maximum).exp();
    products.head(seen.from).setZero();
    products.tail(keys - seen.to).setZero();
    return maximum;
  }

  T scale, cap;
};

// Of keys that are not seen.
template <class Row>
void hide(Row&& row, const Seen& seen, int64_t keys) {
  row.head(seen.from).setZero();
  row.tail(keys - seen.to).setZero();
}

// The backward pass of one head after the other. With P = softmax(S): dV = P^T dO,
// dS = P (dO V^T - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q.
template <class T>
class HeadBackward {
 public:
  HeadBackward(const AttentionShape& s, int64_t keys)
      : scores_(s),
        probability_(std::min(kQueryBlock, s.sequence), keys),
        gradient_(probability_.rows(), keys) {}

  // `seen(i)`: what query i sees. Adds to d_q, d_k and d_v.
  template <class F>
  void add(const ConstStridedView<T>& q, const ConstStridedView<T>& k, const ConstStridedView<T>& v,
           const ConstStridedView<T>& out, const ConstStridedView<T>& d_out, const T* log_sum_exp, F&& seen,
           StridedView<T>& d_q, StridedView<T>& d_k, StridedView<T>& d_v) {
    for_each_block(q.rows(), seen, [&](const QueryBlock& block) {
      auto p = probability_.topLeftCorner(block.rows, block.keys);
      auto g = gradient_.topLeftCorner(block.rows, block.keys);
      const auto q_rows = q.middleRows(block.first, block.rows);
      const auto d_rows = d_out.middleRows(block.first, block.rows);
      p.noalias() = q_rows * k.middleRows(block.from, block.keys).transpose();
      g.noalias() = d_rows * v.middleRows(block.from, block.keys).transpose();
      for (int64_t i = 0; i < block.rows; ++i) {
        const T delta = d_rows.row(i).dot(out.row(block.first + i));
        row_gradient(p.row(i), g.row(i), block.within(seen(block.first + i)), log_sum_exp[block.first + i],
                     delta);
      }
      d_v.middleRows(block.from, block.keys).noalias() += p.transpose() * d_rows;
      d_q.middleRows(block.first, block.rows).noalias() += g * k.middleRows(block.from, block.keys);
      d_k.middleRows(block.from, block.keys).noalias() += g.transpose() * q_rows;
    });
  }

 private:
  // Products become probabilities, and the gradients of those the gradients of products.
  template <class Row>
  void row_gradient(Row p, Row g, const Seen& seen, T log_sum_exp, T delta) const {
    const int64_t keys = p.size(), whole = whole_vectors(seen.to, keys);
    auto row = p.head(whole).array();
    auto out = g.head(whole).array();
    if (scores_.cap > T(0)) {
      scores_.to_capped(row);
      out = (out - delta) * (T(1) - (row / scores_.cap).square()) * scores_.scale;
      row = (row - log_sum_exp).exp();
      hide(p, seen, keys);
      out *= row;
    } else {
      row = (row * scores_.scale - log_sum_exp).exp();
      hide(p, seen, keys);
      out = (out - delta) * row * scores_.scale;
    }
    g.tail(keys - whole).setZero();
  }

  Scores<T> scores_;
  RowMatrix<T> probability_, gradient_;
};

// One head of `data` [b*rows, stride], at column `column`.
template <class T>
ConstStridedView<T> head_columns(const T* data, int64_t batch, int64_t rows, int64_t stride, int64_t column,
                                 int64_t width) {
  return ConstStridedView<T>(data + batch * rows * stride + column, rows, width,
                             Eigen::OuterStride<>(stride));
}
template <class T>
StridedView<T> head_columns(T* data, int64_t batch, int64_t rows, int64_t stride, int64_t column,
                            int64_t width) {
  return StridedView<T>(data + batch * rows * stride + column, rows, width, Eigen::OuterStride<>(stride));
}

// The operands of one head of one sequence against a block of keys.
template <class T>
struct BlockHead {
  BlockHead(const AttentionBlock& block, const T* qkv, const T* kv, int64_t batch, int64_t head)
      : key_column(head / (block.shape.heads / block.shape.kv_heads) * block.shape.head_dim),
        value_column(block.shape.kv_heads * block.shape.head_dim +
                     head / (block.shape.heads / block.shape.kv_heads) * block.shape.values()),
        q(head_columns(qkv, batch, block.shape.sequence, block.shape.row(), head * block.shape.head_dim,
                       block.shape.head_dim)),
        k(head_columns(kv, batch, block.keys, block.shape.kv_row(), key_column, block.shape.head_dim)),
        v(head_columns(kv, batch, block.keys, block.shape.kv_row(), value_column, block.shape.values())) {}
  int64_t key_column, value_column;
  ConstStridedView<T> q, k, v;
};

auto seen_in(const AttentionBlock& block) {
  return [&block](int64_t query) {
    return Seen{block.hidden.empty() ? 0 : block.hidden[size_t(query)], block.visible[size_t(query)]};
  };
}

// Of a query that sees none of the block: nothing is added.
template <class Row>
bool sees_nothing(Row&& row, const Seen& seen) {
  if (seen.from < seen.to) return false;
  row.setZero();
  return true;
}

template <class T>
void attention_forward(const AttentionShape& s, const T* qkv, T* out, T* log_sum_exp) {
  const Scores<T> scoring(s);
  const auto seen_by = seen_in_order(s);
  RowMatrix<T> scores(std::min(kQueryBlock, s.sequence), s.sequence);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const HeadViews<T, const T*> head(s, qkv, b, h);
      StridedView<T> o(out + (b * s.sequence * s.heads + h) * s.values(), s.sequence, s.values(),
                       Eigen::OuterStride<>(s.outputs()));
      T* lse = log_sum_exp + (b * s.heads + h) * s.sequence;
      for_each_block(s.sequence, seen_by, [&](const QueryBlock& block) {
        auto p = scores.topLeftCorner(block.rows, block.keys);
        p.noalias() = head.q.middleRows(block.first, block.rows) *
                      head.k.middleRows(block.from, block.keys).transpose();
        for (int64_t i = 0; i < block.rows; ++i) {
          const Seen seen = block.within(seen_by(block.first + i));
          const T maximum = scoring.to_exponentials(p.row(i), seen, block.keys);
          auto row = p.row(i).head(whole_vectors(seen.to, block.keys)).array();
          const T sum = row.sum();
          row *= T(1) / sum;
          lse[block.first + i] = maximum + std::log(sum);
        }
        o.middleRows(block.first, block.rows).noalias() = p * head.v.middleRows(block.from, block.keys);
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
                   log_sum_exp + (b * s.heads + h) * s.sequence, seen_in_order(s), gradients.q, gradients.k,
                   gradients.v);
    }
  }
}

// A block's own softmax, joined to the earlier ones' by their log-sum-exps.
template <class T>
void attention_block_forward(const AttentionBlock& block, const T* qkv, const T* kv, bool first, T* out,
                             T* log_sum_exp) {
  const AttentionShape& s = block.shape;
  const Scores<T> scoring(s);
  const auto seen_by = seen_in(block);
  if (first) {
    std::fill_n(out, s.tokens() * s.outputs(), T(0));
    std::fill_n(log_sum_exp, s.tokens() * s.heads, -std::numeric_limits<T>::infinity());
  }
  RowMatrix<T> scores(std::min(kQueryBlock, s.sequence), block.keys), part(scores.rows(), s.values());
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const BlockHead<T> head(block, qkv, kv, b, h);
      auto o = head_columns(out, b, s.sequence, s.outputs(), h * s.values(), s.values());
      T* lse = log_sum_exp + (b * s.heads + h) * s.sequence;
      for_each_block(s.sequence, seen_by, [&](const QueryBlock& queries) {
        auto p = scores.topLeftCorner(queries.rows, queries.keys);
        p.noalias() = head.q.middleRows(queries.first, queries.rows) *
                      head.k.middleRows(queries.from, queries.keys).transpose();
        for (int64_t i = 0; i < queries.rows; ++i) {
          const Seen seen = queries.within(seen_by(queries.first + i));
          if (sees_nothing(p.row(i), seen)) continue;
          const T maximum = scoring.to_exponentials(p.row(i), seen, queries.keys);
          auto row = p.row(i).head(whole_vectors(seen.to, queries.keys)).array();
          const T own = maximum + std::log(row.sum());
          T& joined = lse[queries.first + i];
          const T high = std::max(own, joined);
          const T sum = high + std::log(std::exp(own - high) + std::exp(joined - high));
          row *= std::exp(maximum - sum);
          o.row(queries.first + i) *= std::exp(joined - sum);
          joined = sum;
        }
        auto added = part.topRows(queries.rows);
        added.noalias() = p * head.v.middleRows(queries.from, queries.keys);
        o.middleRows(queries.first, queries.rows) += added;
      });
    }
  }
}

template <class T>
void attention_block_backward(const AttentionBlock& block, const T* dout, const T* qkv, const T* kv,
                              const T* out, const T* log_sum_exp, T* dq, T* dkv) {
  const AttentionShape& s = block.shape;
  const int64_t width = s.heads * s.head_dim;
  HeadBackward<T> backward(s, block.keys);
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const BlockHead<T> head(block, qkv, kv, b, h);
      auto d_q = head_columns(dq, b, s.sequence, width, h * s.head_dim, s.head_dim);
      auto d_k = head_columns(dkv, b, block.keys, s.kv_row(), head.key_column, s.head_dim);
      auto d_v = head_columns(dkv, b, block.keys, s.kv_row(), head.value_column, s.values());
      backward.add(head.q, head.k, head.v, head_of(s, out, b, h), head_of(s, dout, b, h),
                   log_sum_exp + (b * s.heads + h) * s.sequence, seen_in(block), d_q, d_k, d_v);
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
      cosine[i] = T(std::cos(angle) * rotation.factor);
      sine[i] = T(std::sin(angle) * direction * rotation.factor);
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

}  // namespace

void run(const Call& call, const AttentionForward& o) {
  const AttentionShape& s = o.shape;
  call.compute([&](auto& f) {
    attention_forward(s, f.in(o.qkv, s.tokens() * s.row()), f.out(o.out, s.tokens() * s.outputs()),
                      f.state(o.log_sum_exp));
  });
}

void run(const Call& call, const AttentionBackward& o) {
  const AttentionShape& s = o.shape;
  const int64_t count = s.tokens() * s.outputs(), wide = s.tokens() * s.row();
  call.compute([&](auto& f) {
    attention_backward(s, f.in(o.dout, count), f.in(o.qkv, wide), f.in(o.out, count), f.state(o.log_sum_exp),
                       f.out(o.dqkv, wide));
  });
}

void run(const Call& call, const AttentionBlockForward& o) {
  const AttentionShape& s = o.block.shape;
  call.compute([&](auto& f) {
    attention_block_forward(o.block, f.in(o.qkv, s.tokens() * s.row()),
                            f.in(o.kv, s.batch * o.block.keys * s.kv_row()), o.first, f.state(o.out),
                            f.state(o.log_sum_exp));
  });
}

void run(const Call& call, const AttentionBlockBackward& o) {
  const AttentionShape& s = o.block.shape;
  const int64_t count = s.tokens() * s.outputs();
  call.compute([&](auto& f) {
    attention_block_backward(o.block, f.in(o.dout, count), f.in(o.qkv, s.tokens() * s.row()),
                             f.in(o.kv, s.batch * o.block.keys * s.kv_row()), f.in(o.out, count),
                             f.state(o.log_sum_exp), f.state(o.dq), f.state(o.dkv));
  });
}

void run(const Call& call, const Rotate& o) {
  call.compute([&](auto& f) {
    rotary(o.shape, o.rotation, o.direction, f.in_out(o.qkv, o.shape.tokens() * o.shape.row()));
  });
}

}  // namespace mpt::runtime::cpu
