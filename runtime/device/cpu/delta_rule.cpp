// SPDX-License-Identifier: Apache-2.0

// The gated delta rule (arXiv:2412.06464, section 3.1), token after token. Forward keeps no state. Backward
// keeps those before chunks of tokens, and makes the others again.

#include <cmath>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {
namespace {

template <class T>
struct DeltaOperands {
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

// One head of one sequence.
template <class T>
class DeltaHead {
 public:
  DeltaHead(const DeltaShape& s, const DeltaOperands<const T>& in, const DeltaRoom<T>& room, int64_t sequence,
            int64_t head)
      : s_(s), in_(in), room_(room), begin_(sequence * s.sequence), head_(head), state_(matrix(room.state)) {}

  void forward(T* out) {
    state_.setZero();
    for (int64_t t = 0; t < s_.sequence; ++t) {
      step(t, state_, state_);
      Map(out + out_at(t), s_.head_dim).noalias() = state_.transpose() * q_;
    }
  }

  void backward(const T* dout, const DeltaOperands<T>& to) {
    const auto before = [&](int64_t c) { return matrix(room_.states + c * s_.of_head().state()); };
    const auto inside = [&](int64_t i) { return matrix(room_.inside + i * s_.of_head().state()); };
    before(0).setZero();
    for (int64_t t = 0; t < (s_.chunks() - 1) * s_.chunk; ++t) {
      Matrix next = before(t / s_.chunk + 1);
      step(t, t % s_.chunk == 0 ? before(t / s_.chunk) : next, next);
    }
    *room_.d_decay = *room_.d_step_bias = T(0);
    state_.setZero();
    for (int64_t c = s_.chunks() - 1; c >= 0; --c) {
      const int64_t first = c * s_.chunk, last = std::min(first + s_.chunk, s_.sequence) - 1;
      inside(0) = before(c);
      for (int64_t t = first; t < last; ++t) {
        Matrix next = inside(t - first + 1);
        step(t, inside(t - first), next);
      }
      for (int64_t t = last; t >= first; --t)
        backward_step(t, inside(t - first), ConstMap(dout + out_at(t), s_.head_dim), to);
    }
  }

 private:
  using Matrix = MatrixView<T>;
  using Vector = Eigen::Matrix<T, Eigen::Dynamic, 1>;
  using Map = Eigen::Map<Vector>;
  using ConstMap = Eigen::Map<const Vector>;

  Matrix matrix(T* data) const { return {data, s_.key_dim, s_.head_dim}; }
  int64_t out_at(int64_t t) const { return (begin_ + t) * s_.values() + head_ * s_.head_dim; }
  int64_t value_at(int64_t t) const {
    return (begin_ + t) * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim;
  }
  T rate() const { return -std::exp(in_.decay[head_]); }

  // What the token says, and its update of the state before it.
  void read(int64_t t, const Matrix& state) {
    const T* const from =
        in_.qkv + (begin_ + t) * s_.columns() + head_ / (s_.heads / s_.key_heads) * s_.key_dim;
    const ConstArrayView<T> query(from, s_.key_dim), key(from + s_.keys(), s_.key_dim);
    q_ = query * (reciprocal_length(query) / std::sqrt(T(s_.key_dim)));
    k_ = key * reciprocal_length(key);
    const T* const gates = in_.gates + (begin_ + t) * s_.row;
    beta_ = delta_sigmoid(gates[head_]);
    step_ = gates[s_.heads + head_] + in_.step_bias[head_];
    factor_ = std::exp(rate() * delta_softplus(step_));
    error_.noalias() = state.transpose() * k_;
    error_ = ConstMap(in_.qkv + value_at(t), s_.head_dim) - factor_ * error_;
    update_ = beta_ * error_;
  }

  // `to` may be `from`.
  void step(int64_t t, const Matrix& from, Matrix& to) {
    read(t, from);
    to = factor_ * from;
    to.noalias() += k_ * update_.transpose();
  }

  // `state` is that before the token. The gradient of the state after it becomes that of the one before it.
  void backward_step(int64_t t, const Matrix& state, const ConstMap& dout, const DeltaOperands<T>& to) {
    read(t, state);
    state_.noalias() += q_ * dout.transpose();
    Map d_q(room_.d_q + t * s_.key_dim, s_.key_dim), d_k(room_.d_k + t * s_.key_dim, s_.key_dim);
    d_q.noalias() = state * dout;
    d_q = factor_ * d_q + k_ * update_.dot(dout);
    d_update_.noalias() = state_.transpose() * k_;
    const T d_beta = d_update_.dot(error_);
    d_update_ *= beta_;  // of the error, which is that of the value
    d_k.noalias() = state * d_update_;
    d_k *= -factor_;
    d_k.noalias() += state_ * update_;
    state_.noalias() -= k_ * d_update_.transpose();
    const T d_log = state_.cwiseProduct(state).sum() * factor_;
    state_ *= factor_;
    Map(to.qkv + value_at(t), s_.head_dim) = d_update_;
    T* const gates = to.gates + (begin_ + t) * s_.row;
    const T d_step = d_log * rate() * delta_sigmoid(step_);
    gates[head_] = d_beta * beta_ * (T(1) - beta_);
    gates[s_.heads + head_] = d_step;
    *room_.d_step_bias += d_step;
    *room_.d_decay += d_log * rate() * delta_softplus(step_);
  }

  const DeltaShape& s_;
  const DeltaOperands<const T>& in_;
  const DeltaRoom<T> room_;
  const int64_t begin_, head_;
  Matrix state_;  // in backward its gradient
  // Of the token that was read last.
  Vector q_, k_, error_, update_, d_update_;
  T beta_ = 0, step_ = 0, factor_ = 0;
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
void gather_keys(const DeltaShape& s, const DeltaOperands<const T>& in, int64_t sequence, int64_t key_head,
                 T* room, T* dqkv) {
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

template <class T, class F>
DeltaOperands<const T> operands_of(const DeltaShape& s, const DeltaInputs& in, F& f) {
  return {f.in(in.qkv, s.tokens() * s.columns()), f.in(in.gates, s.read_gates()), f.in(in.decay, s.heads),
          f.in(in.step_bias, s.heads)};
}

}  // namespace

void run(const Call& call, const DeltaForward& o) {
  const DeltaShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const DeltaOperands<const T> in = operands_of<T>(s, o.in, f);
    T *const out = f.out(o.out, s.tokens() * s.values()), *const room = f.state(o.room);
    for (int64_t i = 0; i < s.batch * s.heads; ++i)
      DeltaHead(s, in, delta_room(s, room, false, i), i / s.heads, i % s.heads).forward(out);
  });
}

void run(const Call& call, const DeltaBackward& o) {
  const DeltaShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const DeltaOperands<const T> in = operands_of<T>(s, o.in, f);
    const DeltaOperands<T> to{f.out(o.d.qkv, s.tokens() * s.columns()), f.in_out(o.d.gates, s.read_gates()),
                              f.state(o.d.decay), f.state(o.d.step_bias)};
    const T* const dout = f.in(o.dout, s.tokens() * s.values());
    T* const room = f.state(o.room);
    for (int64_t i = 0; i < s.batch * s.heads; ++i) {
      const DeltaRoom<T> own = delta_room(s, room, true, i);
      DeltaHead<T>(s, in, own, i / s.heads, i % s.heads).backward(dout, to);
      to.decay[i % s.heads] += *own.d_decay;
      to.step_bias[i % s.heads] += *own.d_step_bias;
    }
    for (int64_t i = 0; i < s.batch * s.key_heads; ++i)
      gather_keys(s, in, i / s.key_heads, i % s.key_heads, room, to.qkv);
  });
}

}  // namespace mpt::runtime::cpu
