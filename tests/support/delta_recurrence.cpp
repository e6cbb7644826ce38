// SPDX-License-Identifier: Apache-2.0
#include "tests/support/delta_recurrence.h"

#include <cmath>

namespace mpt::test {
namespace {

using runtime::DeltaShape;
using Numbers = std::vector<double>;

double logistic(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double length(const double* x, int64_t n) {
  double sum = 1e-6;
  for (int64_t i = 0; i < n; ++i) sum += x[i] * x[i];
  return std::sqrt(sum);
}

// One head of one sequence. States are [token + 1][key_dim * head_dim], the first of zeros.
class Head {
 public:
  Head(const DeltaShape& s, const DeltaNumbers& in, int64_t sequence, int64_t head)
      : s_(s), in_(in), begin_(sequence * s.sequence), head_(head) {
    states_.assign(size_t((s.sequence + 1) * s.key_dim * s.head_dim), 0.0);
    for (int64_t t = 0; t < s.sequence; ++t) step(t);
  }

  void output(Numbers& out) const {
    for (int64_t t = 0; t < s_.sequence; ++t) {
      for (int64_t v = 0; v < s_.head_dim; ++v) {
        double sum = 0.0;
        for (int64_t k = 0; k < s_.key_dim; ++k) sum += state(t + 1, k, v) * query(t, k);
        out[size_t((begin_ + t) * s_.values() + head_ * s_.head_dim + v)] = sum;
      }
    }
  }

  void backward(const Numbers& dout, DeltaNumbers& d) const {
    const auto keys = size_t(s_.key_dim), values = size_t(s_.head_dim);
    Numbers d_state(keys * values, 0.0);
    for (int64_t t = s_.sequence - 1; t >= 0; --t) {
      Numbers d_query(keys, 0.0), d_key(keys, 0.0);
      const double* const dy = &dout[size_t((begin_ + t) * s_.values() + head_ * s_.head_dim)];
      double d_beta = 0.0, d_factor = 0.0;
      for (size_t k = 0; k < keys; ++k) {
        for (size_t v = 0; v < values; ++v) {
          d_query[k] += dy[v] * state(t + 1, int64_t(k), int64_t(v));
          d_state[k * values + v] += dy[v] * query(t, int64_t(k));
        }
      }
      for (size_t v = 0; v < values; ++v) {
        const double wrong = error(t, int64_t(v));
        double d_update = 0.0;
        for (size_t k = 0; k < keys; ++k) {
          d_update += d_state[k * values + v] * key(t, int64_t(k));
          d_key[k] += d_state[k * values + v] * beta(t) * wrong;
        }
        d_beta += d_update * wrong;
        const double d_error = d_update * beta(t);
        d.qkv[value_at(t, int64_t(v))] += d_error;
        for (size_t k = 0; k < keys; ++k) {
          const double old = state(t, int64_t(k), int64_t(v));
          d_key[k] -= d_error * factor(t) * old;
          d_factor -= d_error * old * key(t, int64_t(k));
          double& ds = d_state[k * values + v];
          d_factor += ds * old;
          ds = ds * factor(t) - d_error * factor(t) * key(t, int64_t(k));
        }
      }
      give(t, d_query, d_key, d_beta, d_factor, d);
    }
  }

 private:
  size_t query_at(int64_t t, int64_t k) const {
    return size_t((begin_ + t) * s_.columns() + head_ / (s_.heads / s_.key_heads) * s_.key_dim + k);
  }
  size_t key_at(int64_t t, int64_t k) const { return query_at(t, k) + size_t(s_.keys()); }
  size_t value_at(int64_t t, int64_t v) const {
    return size_t((begin_ + t) * s_.columns() + 2 * s_.keys() + head_ * s_.head_dim + v);
  }
  double query(int64_t t, int64_t k) const {
    return in_.qkv[query_at(t, k)] / length(&in_.qkv[query_at(t, 0)], s_.key_dim) /
           std::sqrt(double(s_.key_dim));
  }
  double key(int64_t t, int64_t k) const {
    return in_.qkv[key_at(t, k)] / length(&in_.qkv[key_at(t, 0)], s_.key_dim);
  }
  size_t beta_at(int64_t t) const { return size_t((begin_ + t) * s_.row + head_); }
  size_t step_at(int64_t t) const { return beta_at(t) + size_t(s_.heads); }
  double beta(int64_t t) const { return logistic(in_.gates[beta_at(t)]); }
  double step_of(int64_t t) const { return in_.gates[step_at(t)] + in_.step_bias[size_t(head_)]; }
  double log_factor(int64_t t) const {
    return -std::exp(in_.decay[size_t(head_)]) * std::log1p(std::exp(step_of(t)));
  }
  double factor(int64_t t) const { return std::exp(log_factor(t)); }
  double& state(int64_t t, int64_t k, int64_t v) {
    return states_[size_t((t * s_.key_dim + k) * s_.head_dim + v)];
  }
  double state(int64_t t, int64_t k, int64_t v) const {
    return states_[size_t((t * s_.key_dim + k) * s_.head_dim + v)];
  }
  // A value less what the decayed state has for its key.
  double error(int64_t t, int64_t v) const {
    double known = 0.0;
    for (int64_t k = 0; k < s_.key_dim; ++k) known += factor(t) * state(t, k, v) * key(t, k);
    return in_.qkv[value_at(t, v)] - known;
  }
  void step(int64_t t) {
    for (int64_t v = 0; v < s_.head_dim; ++v) {
      const double update = beta(t) * error(t, v);
      for (int64_t k = 0; k < s_.key_dim; ++k)
        state(t + 1, k, v) = factor(t) * state(t, k, v) + key(t, k) * update;
    }
  }
  void give(int64_t t, const Numbers& d_query, const Numbers& d_key, double d_beta, double d_factor,
            DeltaNumbers& d) const {
    const auto through_length = [&](size_t at, const Numbers& gradient, double scale) {
      const double size = length(&in_.qkv[at], s_.key_dim);
      double dot = 0.0;
      for (size_t k = 0; k < gradient.size(); ++k) dot += gradient[k] * in_.qkv[at + k];
      for (size_t k = 0; k < gradient.size(); ++k)
        d.qkv[at + k] += scale * (gradient[k] - in_.qkv[at + k] * dot / (size * size)) / size;
    };
    through_length(query_at(t, 0), d_query, 1.0 / std::sqrt(double(s_.key_dim)));
    through_length(key_at(t, 0), d_key, 1.0);
    d.gates[beta_at(t)] += d_beta * beta(t) * (1.0 - beta(t));
    const double d_log = d_factor * factor(t);
    const double d_step = -d_log * std::exp(in_.decay[size_t(head_)]) * logistic(step_of(t));
    d.gates[step_at(t)] += d_step;
    d.step_bias[size_t(head_)] += d_step;
    d.decay[size_t(head_)] += d_log * log_factor(t);
  }

  const DeltaShape& s_;
  const DeltaNumbers& in_;
  const int64_t begin_, head_;
  Numbers states_;
};

}  // namespace

Numbers delta_recurrence(const DeltaShape& s, const DeltaNumbers& in) {
  Numbers out(size_t(s.tokens() * s.values()));
  for (int64_t i = 0; i < s.batch * s.heads; ++i) Head(s, in, i / s.heads, i % s.heads).output(out);
  return out;
}

DeltaNumbers delta_recurrence_gradients(const DeltaShape& s, const DeltaNumbers& in, const Numbers& dout) {
  DeltaNumbers d{Numbers(in.qkv.size(), 0.0), Numbers(in.gates.size(), 0.0), Numbers(in.decay.size(), 0.0),
                 Numbers(in.step_bias.size(), 0.0)};
  for (int64_t i = 0; i < s.batch * s.heads; ++i) Head(s, in, i / s.heads, i % s.heads).backward(dout, d);
  return d;
}

}  // namespace mpt::test
