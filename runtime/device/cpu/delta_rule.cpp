// SPDX-License-Identifier: Apache-2.0

// The gated delta rule in chunks (arXiv:2412.06464, section 3.3). A triangular system gives the updates U of
// a chunk's tokens: (I + L) U = beta (V - exp(G) K S). G sums the logarithms of decays, and L_ij = beta_i
// exp(G_i - G_j) k_i . k_j for j < i. Everything else is matrix products.

#include <algorithm>
#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
struct DeltaOperands {
  const T *qkv, *gates, *decay, *step_bias;
};
template <class T>
struct DeltaResults {
  T *qkv, *gates, *decay, *step_bias;
};

constexpr double kLengthEpsilon = 1e-6;

template <class T>
T delta_sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}
template <class T>
T delta_softplus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}

template <class T>
T reciprocal_length(const ConstArrayView<T>& x) {
  return T(1) / std::sqrt(x.square().sum() + T(kLengthEpsilon));
}

// One head of one sequence, chunk by chunk.
template <class T>
class DeltaHead {
 public:
  DeltaHead(const DeltaShape& s, const DeltaOperands<T>& in, const DeltaRoom<T>& room, int64_t sequence,
            int64_t head)
      : s_(s), in_(in), room_(room), begin_(sequence * s.sequence), head_(head) {}

  void forward(T* out) {
    Matrix state(room_.state, s_.key_dim, s_.head_dim);
    state.setZero();
    for (int64_t c = 0; c < s_.chunks(); ++c) {
      open(c);
      solve(state);
      StridedView<T> to(out + token() * s_.values() + head_ * s_.head_dim, n_, s_.head_dim,
                        Eigen::OuterStride<>(s_.values()));
      to.noalias() = q() * state;
      to.array().colwise() *= grown();
      to.noalias() += seen() * updates();
      advance(state);
    }
  }

  void backward(const T* dout, const DeltaResults<T>& to) {
    const int64_t size = s_.key_dim * s_.head_dim;
    std::fill_n(room_.states, size, T(0));
    for (int64_t c = 0; c + 1 < s_.chunks(); ++c) {
      open(c);
      solve(state_before(c));
      std::copy_n(room_.states + c * size, size, room_.states + (c + 1) * size);
      Matrix next = state_before(c + 1);
      advance(next);
    }
    *room_.d_decay = *room_.d_step_bias = T(0);
    Matrix(room_.state, s_.key_dim, s_.head_dim).setZero();
    for (int64_t c = s_.chunks() - 1; c >= 0; --c) {
      open(c);
      solve(state_before(c));
      const ConstStridedView<T> d(dout + token() * s_.values() + head_ * s_.head_dim, n_, s_.head_dim,
                                  Eigen::OuterStride<>(s_.values()));
      backward_solve(d);
      backward_pairs(d);
      backward_rows(d, state_before(c));
      backward_state(d, state_before(c));
      write(to);
    }
  }

 private:
  using Matrix = MatrixView<T>;
  using Column = Eigen::Array<T, Eigen::Dynamic, 1>;

  int64_t token() const { return begin_ + first_; }
  int64_t key_head() const { return head_ / (s_.heads / s_.key_heads); }
  Matrix q() const { return {room_.q, n_, s_.key_dim}; }
  Matrix k() const { return {room_.k, n_, s_.key_dim}; }
  Matrix errors() const { return {room_.errors, n_, s_.head_dim}; }
  Matrix updates() const { return {room_.updates, n_, s_.head_dim}; }
  Matrix d_updates() const { return {room_.d_updates, n_, s_.head_dim}; }
  Matrix pairs(T* data) const { return {data, n_, n_}; }
  Matrix state_before(int64_t c) const {
    return {room_.states + c * s_.key_dim * s_.head_dim, s_.key_dim, s_.head_dim};
  }
  ArrayView<T> row(T* data) const { return {data, n_}; }
  ArrayView<T> beta() const { return row(room_.beta); }
  Column grown() const { return row(room_.log_decay).exp(); }
  Column left() const { return (room_.log_decay[n_ - 1] - row(room_.log_decay)).exp(); }
  T whole() const { return std::exp(room_.log_decay[n_ - 1]); }
  RowMatrix<T> seen() const { return pairs(room_.qk).cwiseProduct(pairs(room_.decays)); }
  const T* gates(int64_t i) const { return in_.gates + (token() + i) * s_.row; }
  T rate() const { return -std::exp(in_.decay[head_]); }
  T step(int64_t i) const { return gates(i)[s_.heads + head_] + in_.step_bias[head_]; }

  // Queries, keys and gates of a chunk, and the products of its tokens.
  void open(int64_t chunk) {
    first_ = chunk * s_.chunk;
    n_ = std::min(s_.chunk, s_.sequence - first_);
    T total = 0;
    for (int64_t i = 0; i < n_; ++i) {
      const T* const from = in_.qkv + (token() + i) * s_.columns() + key_head() * s_.key_dim;
      const ConstArrayView<T> query(from, s_.key_dim), key(from + s_.keys(), s_.key_dim);
      q().row(i).array() = query.transpose() * (reciprocal_length(query) / std::sqrt(T(s_.key_dim)));
      k().row(i).array() = key.transpose() * reciprocal_length(key);
      room_.beta[i] = delta_sigmoid(gates(i)[head_]);
      room_.log_decay[i] = total += rate() * delta_softplus(step(i));
    }
    pairs(room_.qk).noalias() = q() * k().transpose();
    pairs(room_.kk).noalias() = k() * k().transpose();
    for (int64_t i = 0; i < n_; ++i) {
      ArrayView<T> decays(room_.decays + i * n_, n_);
      decays.head(i + 1) = (room_.log_decay[i] - row(room_.log_decay).head(i + 1)).exp();
      decays.tail(n_ - i - 1).setZero();
    }
    lower_ = pairs(room_.kk).cwiseProduct(pairs(room_.decays));
    lower_.array().colwise() *= beta();
  }

  void solve(const Matrix& state) {
    const ConstStridedView<T> values(in_.qkv + token() * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim,
                                     n_, s_.head_dim, Eigen::OuterStride<>(s_.columns()));
    updates().noalias() = k() * state;
    errors() = values;
    errors().array() -= updates().array().colwise() * grown();
    updates().array() = errors().array().colwise() * beta();
    Matrix solved = updates();
    lower_.template triangularView<Eigen::UnitLower>().solveInPlace(solved);
  }

  void advance(Matrix& state) const {
    state *= whole();
    scaled_ = updates().array().colwise() * left();
    state.noalias() += k().transpose() * scaled_;
  }

  // The gradient of the triangular system's right side.
  void backward_solve(const ConstStridedView<T>& dout) {
    const Matrix d_state(room_.state, s_.key_dim, s_.head_dim);
    Matrix d = d_updates();
    d.noalias() = k() * d_state;
    d.array().colwise() *= left();
    d.noalias() += seen().transpose() * dout;
    lower_.transpose().template triangularView<Eigen::UnitUpper>().solveInPlace(d);
  }

  // Those of the products between tokens, and what follows for decays and betas.
  void backward_pairs(const ConstStridedView<T>& dout) {
    Matrix d_qk = pairs(room_.d_qk), d_kk = pairs(room_.d_kk);
    d_qk.noalias() = dout * updates().transpose();
    d_qk.array() *= pairs(room_.decays).array();
    d_kk.noalias() = -d_updates() * updates().transpose();
    d_kk.array() *= pairs(room_.decays).array();
    d_kk.diagonal().setZero();
    row(room_.d_beta) = d_kk.cwiseProduct(pairs(room_.kk)).rowwise().sum().array() +
                        d_updates().cwiseProduct(errors()).rowwise().sum().array();
    d_kk.array().colwise() *= beta();
    RowMatrix<T> x = d_qk.cwiseProduct(pairs(room_.qk)) + d_kk.cwiseProduct(pairs(room_.kk));
    x.diagonal().setZero();  // a token does not decay against itself
    row(room_.d_log_decay) = x.rowwise().sum().array() - x.colwise().sum().transpose().array();
    d_updates().array().colwise() *= beta();  // of the errors, which is that of values
  }

  // Those of queries and keys, and of decays through them.
  void backward_rows(const ConstStridedView<T>& dout, const Matrix& state) {
    const Matrix d_state(room_.state, s_.key_dim, s_.head_dim);
    Matrix d_q(room_.d_q + first_ * s_.key_dim, n_, s_.key_dim),
        d_k(room_.d_k + first_ * s_.key_dim, n_, s_.key_dim);
    ArrayView<T> d_log = row(room_.d_log_decay);
    d_q.noalias() = dout * state.transpose();
    d_q.array().colwise() *= grown();
    d_log += d_q.cwiseProduct(q()).rowwise().sum().array();
    d_k.noalias() = -d_updates() * state.transpose();
    d_k.array().colwise() *= grown();
    d_log += d_k.cwiseProduct(k()).rowwise().sum().array();
    RowMatrix<T> by_state(n_, s_.key_dim);
    by_state.noalias() = updates() * d_state.transpose();
    by_state.array().colwise() *= left();
    const Column last = by_state.cwiseProduct(k()).rowwise().sum();
    d_log -= last;
    d_log[n_ - 1] += last.sum() + whole() * state.cwiseProduct(d_state).sum();
    d_k += by_state;
    d_q.noalias() += pairs(room_.d_qk) * k();
    d_k.noalias() += pairs(room_.d_qk).transpose() * q();
    d_k.noalias() += pairs(room_.d_kk) * k();
    d_k.noalias() += pairs(room_.d_kk).transpose() * k();
  }

  void backward_state(const ConstStridedView<T>& dout, const Matrix&) {
    Matrix d_state(room_.state, s_.key_dim, s_.head_dim);
    d_state *= whole();
    scaled_ = dout.array().colwise() * grown();
    d_state.noalias() += q().transpose() * scaled_;
    scaled_ = d_updates().array().colwise() * grown();
    d_state.noalias() -= k().transpose() * scaled_;
  }

  void write(const DeltaResults<T>& to) const {
    StridedView<T>(to.qkv + token() * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim, n_, s_.head_dim,
                   Eigen::OuterStride<>(s_.columns())) = d_updates();
    T later = 0;
    for (int64_t i = n_; i-- > 0;) {
      later += room_.d_log_decay[i];
      T* const gates = to.gates + (token() + i) * s_.row;
      const T beta = room_.beta[i], d_step = later * rate() * delta_sigmoid(step(i));
      gates[head_] = room_.d_beta[i] * beta * (T(1) - beta);
      gates[s_.heads + head_] = d_step;
      *room_.d_step_bias += d_step;
      *room_.d_decay += later * rate() * delta_softplus(step(i));
    }
  }

  const DeltaShape& s_;
  const DeltaOperands<T>& in_;
  const DeltaRoom<T> room_;
  const int64_t begin_, head_;
  int64_t first_ = 0, n_ = 0;  // of the chunk
  RowMatrix<T> lower_;
  mutable RowMatrix<T> scaled_;
};

// The gradient of a query or key before it was divided by its length. `d` is its gradient after that, summed
// over the heads of its key head.
template <class T>
void backward_length(const DeltaShape& s, const T* x, const Eigen::Array<T, Eigen::Dynamic, 1>& d, T scale,
                     T* to) {
  const ConstArrayView<T> in(x, s.key_dim);
  const T r = reciprocal_length(in);
  ArrayView<T>(to, s.key_dim) = scale * r * (d - in * (r * r * (in * d).sum()));
}

template <class T>
void gather_keys(const DeltaShape& s, const DeltaOperands<T>& in, int64_t sequence, int64_t key_head, T* room,
                 T* dqkv) {
  const int64_t shared = s.heads / s.key_heads;
  Eigen::Array<T, Eigen::Dynamic, 1> d_q(s.key_dim), d_k(s.key_dim);
  for (int64_t i = 0; i < s.sequence; ++i) {
    d_q.setZero();
    d_k.setZero();
    for (int64_t h = key_head * shared; h < (key_head + 1) * shared; ++h) {
      const DeltaRoom<T> of = delta_room(s, room, true, sequence * s.heads + h);
      d_q += ConstArrayView<T>(of.d_q + i * s.key_dim, s.key_dim);
      d_k += ConstArrayView<T>(of.d_k + i * s.key_dim, s.key_dim);
    }
    const int64_t at = (sequence * s.sequence + i) * s.columns() + key_head * s.key_dim;
    backward_length(s, in.qkv + at, d_q, T(1) / std::sqrt(T(s.key_dim)), dqkv + at);
    backward_length(s, in.qkv + at + s.keys(), d_k, T(1), dqkv + at + s.keys());
  }
}

template <class T>
void delta_forward(const DeltaShape& s, const DeltaOperands<T>& in, T* out, T* room) {
  for (int64_t i = 0; i < s.batch * s.heads; ++i)
    DeltaHead<T>(s, in, delta_room(s, room, false, i), i / s.heads, i % s.heads).forward(out);
}

template <class T>
void delta_backward(const DeltaShape& s, const DeltaOperands<T>& in, const T* dout, const DeltaResults<T>& to,
                    T* room) {
  for (int64_t i = 0; i < s.batch * s.heads; ++i) {
    const DeltaRoom<T> own = delta_room(s, room, true, i);
    DeltaHead<T>(s, in, own, i / s.heads, i % s.heads).backward(dout, to);
    to.decay[i % s.heads] += *own.d_decay;
    to.step_bias[i % s.heads] += *own.d_step_bias;
  }
  for (int64_t i = 0; i < s.batch * s.key_heads; ++i)
    gather_keys(s, in, i / s.key_heads, i % s.key_heads, room, to.qkv);
}

template <class Operands>
auto operands_of(const DeltaShape& s, const DeltaInputs& in, Operands& f) {
  return DeltaOperands<typename Operands::Element>{f.in(in.qkv, s.tokens() * s.columns()),
                                                   f.in(in.gates, s.read_gates()), f.in(in.decay, s.heads),
                                                   f.in(in.step_bias, s.heads)};
}

}  // namespace

void run(const Call& call, const DeltaForward& o) {
  const DeltaShape& s = o.shape;
  call.compute([&](auto& f) {
    delta_forward(s, operands_of(s, o.in, f), f.out(o.out, s.tokens() * s.values()), f.state(o.room));
  });
}

void run(const Call& call, const DeltaBackward& o) {
  const DeltaShape& s = o.shape;
  call.compute([&]<class Operands>(Operands& f) {
    const DeltaResults<typename Operands::Element> results{f.out(o.d.qkv, s.tokens() * s.columns()),
                                                           f.in_out(o.d.gates, s.read_gates()),
                                                           f.state(o.d.decay), f.state(o.d.step_bias)};
    delta_backward(s, operands_of(s, o.in, f), f.in(o.dout, s.tokens() * s.values()), results,
                   f.state(o.room));
  });
}

}  // namespace mpt::runtime::cpu
