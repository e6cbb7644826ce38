// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"
#include "runtime/device/cpu/turn.h"

namespace mpt::runtime::cpu {
namespace {

// Query rows handled at once: their scores against all earlier keys fit the cache, and blocks above the
// diagonal are never computed. The [s, s] matrix is never stored (Dao et al. 2022, arXiv:2205.14135).
constexpr int64_t kQueryBlock = 48;

// One head of `data` [b*rows, stride], at column `column`. T may be const.
template <class T>
using HeadView =
    std::conditional_t<std::is_const_v<T>, ConstStridedView<std::remove_const_t<T>>, StridedView<T>>;
template <class T>
HeadView<T> head_columns(T* data, int64_t batch, int64_t rows, int64_t stride, int64_t column,
                         int64_t width) {
  return HeadView<T>(data + batch * rows * stride + column, rows, width, Eigen::OuterStride<>(stride));
}
template <class T>
HeadView<T> head_of_output(const AttentionShape& s, T* data, int64_t batch, int64_t head) {
  return head_columns(data, batch, s.sequence, s.outputs(), head * s.values(), s.values());
}

// Queries of sequences, and their keys with the values beside them; rows lie so many elements apart.
template <class T>
struct Packed {
  T* q;
  int64_t q_row;
  T* kv;
  int64_t keys, kv_row;
};
template <class T>
Packed<T> packed(const AttentionShape& s, T* qkv) {
  return {qkv, s.row(), qkv + s.heads * s.head_dim, s.sequence, s.row()};
}

// Of one query head of one sequence.
template <class T>
struct HeadViews {
  HeadViews(const AttentionShape& s, const Packed<T>& in, int64_t batch, int64_t head)
      : group(head / (s.heads / s.kv_heads)),
        q(head_columns(in.q, batch, s.sequence, in.q_row, head * s.head_dim, s.head_dim)),
        k(head_columns(in.kv, batch, in.keys, in.kv_row, group * s.head_dim, s.head_dim)),
        v(head_columns(in.kv, batch, in.keys, in.kv_row, s.kv_heads * s.head_dim + group * s.values(),
                       s.values())) {}
  int64_t group;
  HeadView<T> q, k, v;
};

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

// Of keys that are not seen.
template <class Row>
void hide(Row&& row, const Seen& seen, int64_t keys) {
  row.head(seen.from).setZero();
  row.tail(keys - seen.to).setZero();
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
    hide(products, seen, keys);
    return maximum;
  }

  T scale, cap;
};

// The backward pass of one head after the other. With P = softmax(S): dV = P^T dO,
// dS = P (dO V^T - rowsum(dO O)), dQ = scale dS K, dK = scale dS^T Q.
template <class T>
class HeadBackward {
 public:
  HeadBackward(const AttentionShape& s, int64_t keys)
      : scores_(s),
        probability_(std::min(kQueryBlock, s.sequence), keys),
        gradient_(probability_.rows(), keys) {}

  // `seen(i)`: what query i sees. Adds to `to`.
  template <class F>
  void add(const HeadViews<const T>& of, const HeadView<const T>& out, const HeadView<const T>& d_out,
           const T* log_sum_exp, F&& seen, HeadViews<T>& to) {
    for_each_block(of.q.rows(), seen, [&](const QueryBlock& block) {
      auto p = probability_.topLeftCorner(block.rows, block.keys);
      auto g = gradient_.topLeftCorner(block.rows, block.keys);
      const auto q_rows = of.q.middleRows(block.first, block.rows);
      const auto d_rows = d_out.middleRows(block.first, block.rows);
      p.noalias() = q_rows * of.k.middleRows(block.from, block.keys).transpose();
      g.noalias() = d_rows * of.v.middleRows(block.from, block.keys).transpose();
      for (int64_t i = 0; i < block.rows; ++i) {
        const T delta = d_rows.row(i).dot(out.row(block.first + i));
        row_gradient(p.row(i), g.row(i), block.within(seen(block.first + i)), log_sum_exp[block.first + i],
                     delta);
      }
      to.v.middleRows(block.from, block.keys).noalias() += p.transpose() * d_rows;
      to.q.middleRows(block.first, block.rows).noalias() += g * of.k.middleRows(block.from, block.keys);
      to.k.middleRows(block.from, block.keys).noalias() += g.transpose() * q_rows;
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

// Calls `body` with the products of a block of queries of each head and the keys that these see, and with the
// values of those keys.
template <class T, class SeenBy, class Body>
void for_each_products(const AttentionShape& s, const Packed<const T>& in, SeenBy&& seen, Body&& body) {
  RowMatrix<T> products(std::min(kQueryBlock, s.sequence), in.keys);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      const HeadViews<const T> head(s, in, b, h);
      for_each_block(s.sequence, seen, [&](const QueryBlock& block) {
        auto p = products.topLeftCorner(block.rows, block.keys);
        p.noalias() = head.q.middleRows(block.first, block.rows) *
                      head.k.middleRows(block.from, block.keys).transpose();
        body(b, h, block, p, head.v.middleRows(block.from, block.keys));
      });
    }
}

template <class T, class SeenBy>
void attention_backward(const AttentionShape& s, const Packed<const T>& in, const T* dout, const T* out,
                        const T* log_sum_exp, SeenBy&& seen, const Packed<T>& gradients) {
  HeadBackward<T> backward(s, in.keys);
  for (int64_t b = 0; b < s.batch; ++b)
    for (int64_t h = 0; h < s.heads; ++h) {
      HeadViews<T> to(s, gradients, b, h);
      backward.add({s, in, b, h}, head_of_output(s, out, b, h), head_of_output(s, dout, b, h),
                   log_sum_exp + (b * s.heads + h) * s.sequence, seen, to);
    }
}

}  // namespace

void run(const Call& call, const AttentionForward& o) {
  const AttentionShape& s = o.shape;
  const auto seen_by = seen_in_order(s);
  call.compute([&]<class T>(auto& f, const T*) {
    const Packed<const T> in = packed(s, f.in(o.qkv, s.tokens() * s.row()));
    T *const outputs = f.out(o.out, s.tokens() * s.outputs()), *const log_sum_exp = f.state(o.log_sum_exp);
    const Scores<T> scoring(s);
    for_each_products(
        s, in, seen_by, [&](int64_t b, int64_t h, const QueryBlock& block, auto& p, const auto& v) {
          T* const lse = log_sum_exp + (b * s.heads + h) * s.sequence + block.first;
          for (int64_t i = 0; i < block.rows; ++i) {
            const Seen seen = block.within(seen_by(block.first + i));
            const T maximum = scoring.to_exponentials(p.row(i), seen, block.keys);
            auto row = p.row(i).head(whole_vectors(seen.to, block.keys)).array();
            const T sum = row.sum();
            row *= T(1) / sum;
            lse[i] = maximum + std::log(sum);
          }
          head_of_output(s, outputs, b, h).middleRows(block.first, block.rows).noalias() = p * v;
        });
  });
}

void run(const Call& call, const AttentionBackward& o) {
  const AttentionShape& s = o.shape;
  const int64_t count = s.tokens() * s.outputs(), wide = s.tokens() * s.row();
  call.compute([&]<class T>(auto& f, const T*) {
    T* const dqkv = f.out(o.dqkv, wide);
    std::fill_n(dqkv, wide, T(0));
    attention_backward<T>(s, packed(s, f.in(o.qkv, wide)), f.in(o.dout, count), f.in(o.out, count),
                          f.state(o.log_sum_exp), seen_in_order(s), packed(s, dqkv));
  });
}

// A block's own softmax, joined to the earlier ones' by their log-sum-exps.
void run(const Call& call, const AttentionBlockForward& o) {
  const AttentionShape& s = o.block.shape;
  const auto seen_by = seen_in(o.block);
  call.compute([&]<class T>(auto& f, const T*) {
    const Packed<const T> in{f.in(o.qkv, s.tokens() * s.row()), s.row(),
                             f.in(o.kv, s.batch * o.block.keys * s.kv_row()), o.block.keys, s.kv_row()};
    T *const outputs = f.state(o.out), *const log_sum_exp = f.state(o.log_sum_exp);
    if (o.first) {
      std::fill_n(outputs, s.tokens() * s.outputs(), T(0));
      std::fill_n(log_sum_exp, s.tokens() * s.heads, -std::numeric_limits<T>::infinity());
    }
    const Scores<T> scoring(s);
    RowMatrix<T> part(std::min(kQueryBlock, s.sequence), s.values());
    for_each_products(s, in, seen_by,
                      [&](int64_t b, int64_t h, const QueryBlock& block, auto& p, const auto& v) {
                        auto out = head_of_output(s, outputs, b, h).middleRows(block.first, block.rows);
                        T* const lse = log_sum_exp + (b * s.heads + h) * s.sequence + block.first;
                        for (int64_t i = 0; i < block.rows; ++i) {
                          const Seen seen = block.within(seen_by(block.first + i));
                          if (sees_nothing(p.row(i), seen)) continue;
                          const T maximum = scoring.to_exponentials(p.row(i), seen, block.keys);
                          auto row = p.row(i).head(whole_vectors(seen.to, block.keys)).array();
                          const T own = maximum + std::log(row.sum());
                          const T high = std::max(own, lse[i]);
                          const T sum = high + std::log(std::exp(own - high) + std::exp(lse[i] - high));
                          row *= std::exp(maximum - sum);
                          out.row(i) *= std::exp(lse[i] - sum);
                          lse[i] = sum;
                        }
                        auto added = part.topRows(block.rows);
                        added.noalias() = p * v;
                        out += added;
                      });
  });
}

void run(const Call& call, const AttentionBlockBackward& o) {
  const AttentionShape& s = o.block.shape;
  const int64_t count = s.tokens() * s.outputs(), keys = o.block.keys;
  call.compute([&]<class T>(auto& f, const T*) {
    attention_backward<T>(s,
                          {f.in(o.qkv, s.tokens() * s.row()), s.row(),
                           f.in(o.kv, s.batch * keys * s.kv_row()), keys, s.kv_row()},
                          f.in(o.dout, count), f.in(o.out, count), f.state(o.log_sum_exp), seen_in(o.block),
                          {f.state(o.dq), s.heads * s.head_dim, f.state(o.dkv), keys, s.kv_row()});
  });
}

void run(const Call& call, const Rotate& o) {
  const AttentionShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    T* const qkv = f.in_out(o.qkv, s.tokens() * s.row());
    Eigen::Array<T, Eigen::Dynamic, 1> before(2 * Eigen::Index(o.rotation.frequencies.size()));
    for_each_token<T>(s, o.rotation, o.direction, [&](int64_t t, const Turn<T>& turn) {
      for (int64_t head = 0; head < s.heads + s.kv_heads; ++head) {
        T* const at = qkv + t * s.row() + head * s.head_dim;
        before = view(at, before.size());
        turn.apply(before.data(), at, false);
      }
    });
  });
}

}  // namespace mpt::runtime::cpu
