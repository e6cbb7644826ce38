// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "runtime/device/cpu/eigen_maps.h"
#include "runtime/device/cpu/operators.h"

namespace mpt::runtime::cpu {

namespace {

// The first `count` of `order` by falling value, equal ones by rising number.
template <class F>
void put_best_first(std::vector<int32_t>& order, int64_t count, F&& value) {
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int32_t a, int32_t b) { return value(a) != value(b) ? value(a) > value(b) : a < b; });
}

// The experts that a token may choose from: those of its groups.
template <class T>
void set_candidates(const RouterShape& s, const T* p, std::vector<int32_t>& candidates) {
  candidates.resize(size_t(s.experts));
  std::iota(candidates.begin(), candidates.end(), 0);
  if (!s.limited()) return;
  std::vector<T> sums(static_cast<size_t>(s.groups), T(0));
  std::vector<int32_t> members(static_cast<size_t>(s.group_size())), groups(sums.size());
  for (int64_t g = 0; g < s.groups; ++g) {
    std::iota(members.begin(), members.end(), int32_t(g * s.group_size()));
    put_best_first(members, s.best_of_group(), [&](int32_t e) { return p[e]; });
    for (int64_t j = 0; j < s.best_of_group(); ++j) sums[size_t(g)] += p[members[size_t(j)]];
  }
  std::iota(groups.begin(), groups.end(), 0);
  put_best_first(groups, s.groups_of_token, [&](int32_t g) { return sums[size_t(g)]; });
  const auto chosen = groups.begin() + s.groups_of_token;
  std::erase_if(candidates,
                [&](int32_t e) { return std::find(groups.begin(), chosen, e / s.group_size()) == chosen; });
}

}  // namespace

void run(const Call& call, const RouterForward& o) {
  const RouterShape& s = o.shape;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const logits = f.in(o.logits, s.tokens * s.experts), *const bias = f.in(o.bias, s.experts);
    T *const probabilities = f.state(o.probabilities), *const weights = f.state(o.weights);
    std::vector<int32_t> order;
    std::vector<T> moved(size_t(bias != nullptr ? s.experts : 0));
    for (int64_t t = 0; t < s.tokens; ++t) {
      const auto logit = view(logits + t * s.experts, s.experts);
      auto p = view(probabilities + t * s.experts, s.experts);
      if (s.scores == RouterScores::sigmoid) {
        p = T(1) / (T(1) + (-logit).exp());
      } else {
        p = (logit - logit.maxCoeff()).exp();
        p /= p.sum();
      }
      const T* choice = p.data();
      if (bias != nullptr) {
        view(moved.data(), s.experts) = p + view(bias, s.experts);
        choice = moved.data();
      }
      set_candidates(s, choice, order);
      put_best_first(order, s.top, [&](int32_t e) { return choice[e]; });
      T sum = s.normalized ? T(0) : T(1);
      for (int64_t j = 0; j < s.top && s.normalized; ++j) sum += p[order[size_t(j)]];
      for (int64_t j = 0; j < s.top; ++j) {
        o.chosen[t * s.top + j] = order[size_t(j)];
        weights[t * s.top + j] = p[order[size_t(j)]] / sum * T(s.scale);
      }
    }
  });
}

// w_j = c p_j / s with s the sum of the chosen: dp_j = (c dw_j - sum_i w_i dw_i) / s; without normalisation s
// is 1 and has no gradient. The balance loss works on probabilities that sum up to 1, which those of sigmoid
// are made to do (arXiv:2412.19437, eq. 19). Then the function's own derivative.
void run(const Call& call, const RouterBackward& o) {
  const RouterShape& s = o.shape;
  const bool sigmoid = s.scores == RouterScores::sigmoid;
  call.compute([&]<class T>(auto& f, const T*) {
    const T *const probabilities = f.state(o.probabilities), *const balance = f.state(o.balance);
    T* const dlogits = f.out(o.dlogits, s.tokens * s.experts);
    for (int64_t t = 0; t < s.tokens; ++t) {
      const int32_t* const chosen = o.chosen + t * s.top;
      const T* const dweights = f.state(o.dweights) + t * s.top;
      const auto p = view(probabilities + t * s.experts, s.experts);
      auto d = view(dlogits + t * s.experts, s.experts);
      d.setZero();
      if (balance != nullptr) d = view(balance + (s.first + t) / s.sequence * s.experts, s.experts);
      if (sigmoid && balance != nullptr) {
        const T all = p.sum();
        const T of_balance = (p * d).sum() / all;
        d = (d - of_balance) / all;
      }
      T sum = s.normalized ? T(0) : T(1), mean = 0;
      for (int64_t j = 0; j < s.top && s.normalized; ++j) {
        sum += p[chosen[j]];
        mean += p[chosen[j]] * dweights[j];
      }
      for (int64_t j = 0; j < s.top; ++j) d[chosen[j]] += T(s.scale) * (dweights[j] - mean / sum) / sum;
      if (sigmoid)
        d *= p * (T(1) - p);
      else
        d = p * (d - (p * d).sum());
    }
  });
}

void run(const Call& call, const GatherRows& o) {
  call.copy([&]<class T>(const T*) {
    const T* const x = static_cast<const T*>(o.x);
    for (int64_t i = 0; i < o.count; ++i)
      std::copy_n(x + o.rows[i] * o.columns, o.columns, static_cast<T*>(o.y) + i * o.columns);
  });
}

void run(const Call& call, const SumRows& o) {
  call.compute([&](auto& f, const auto*) {
    const auto* const x = f.in(o.x, o.tokens * o.top * o.columns);
    auto* const y = f.out(o.y, o.tokens * o.columns);
    for (int64_t t = 0; t < o.tokens; ++t) {
      auto sum = view(y + t * o.columns, o.columns);
      sum = view(x + o.rows[t * o.top] * o.columns, o.columns);
      for (int64_t j = 1; j < o.top; ++j) sum += view(x + o.rows[t * o.top + j] * o.columns, o.columns);
    }
  });
}

void run(const Call& call, const ScaleRows& o) {
  const int64_t count = o.rows * o.columns;
  call.compute([&](auto& f, const auto*) {
    const auto *const factors = f.state(o.factors), *const x = f.in(o.x, count);
    auto* const y = f.out(o.y, count);
    for (int64_t r = 0; r < o.rows; ++r)
      view(y + r * o.columns, o.columns) = view(x + r * o.columns, o.columns) * factors[r];
  });
}

void run(const Call& call, const RowDots& o) {
  const int64_t count = o.rows * o.columns;
  call.compute([&](auto& f, const auto*) {
    const auto *const a = f.in(o.a, count), *const b = f.in(o.b, count);
    auto* const dots = f.state(o.dots);
    for (int64_t r = 0; r < o.rows; ++r)
      dots[r] = (view(a + r * o.columns, o.columns) * view(b + r * o.columns, o.columns)).sum();
  });
}

}  // namespace mpt::runtime::cpu
