// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
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

template <class T>
void router_forward(const RouterShape& s, const T* logits, T* probabilities, int32_t* chosen, T* weights,
                    const T* bias) {
  std::vector<int32_t> order;
  std::vector<T> moved(size_t(bias != nullptr ? s.experts : 0));
  for (int64_t t = 0; t < s.tokens; ++t) {
    const ConstArrayView<T> logit(logits + t * s.experts, s.experts);
    ArrayView<T> p(probabilities + t * s.experts, s.experts);
    if (s.scores == RouterScores::sigmoid) {
      p = T(1) / (T(1) + (-logit).exp());
    } else {
      p = (logit - logit.maxCoeff()).exp();
      p /= p.sum();
    }
    const T* choice = p.data();
    if (bias != nullptr) {
      ArrayView<T>(moved.data(), s.experts) = p + ConstArrayView<T>(bias, s.experts);
      choice = moved.data();
    }
    set_candidates(s, choice, order);
    put_best_first(order, s.top, [&](int32_t e) { return choice[e]; });
    T sum = s.normalized ? T(0) : T(1);
    for (int64_t j = 0; j < s.top && s.normalized; ++j) sum += p[order[size_t(j)]];
    for (int64_t j = 0; j < s.top; ++j) {
      chosen[t * s.top + j] = order[size_t(j)];
      weights[t * s.top + j] = p[order[size_t(j)]] / sum * T(s.scale);
    }
  }
}

// w_j = c p_j / s with s the sum of the chosen: dp_j = (c dw_j - sum_i w_i dw_i) / s; without normalisation s
// is 1 and has no gradient. The balance loss works on probabilities that sum up to 1, which those of sigmoid
// are made to do (arXiv:2412.19437, eq. 19). Then the function's own derivative.
template <class T>
void router_backward(const RouterShape& s, const T* probabilities, const int32_t* chosen, const T* dweights,
                     const T* balance, T* dlogits) {
  const int64_t tokens = s.tokens, experts = s.experts, top = s.top;
  for (int64_t t = 0; t < tokens; ++t) {
    const ConstArrayView<T> p(probabilities + t * experts, experts);
    ArrayView<T> d(dlogits + t * experts, experts);
    d.setZero();
    if (balance != nullptr) d = ConstArrayView<T>(balance + (s.first + t) / s.sequence * experts, experts);
    const bool sigmoid = s.scores == RouterScores::sigmoid;
    if (sigmoid && balance != nullptr) {
      const T all = p.sum();
      const T of_balance = (p * d).sum() / all;
      d = (d - of_balance) / all;
    }
    T sum = s.normalized ? T(0) : T(1), mean = 0;
    for (int64_t j = 0; j < top && s.normalized; ++j) {
      const T of_chosen = p[chosen[t * top + j]];
      sum += of_chosen;
      mean += of_chosen * dweights[t * top + j];
    }
    for (int64_t j = 0; j < top; ++j)
      d[chosen[t * top + j]] += T(s.scale) * (dweights[t * top + j] - mean / sum) / sum;
    if (sigmoid) {
      d *= p * (T(1) - p);
    } else {
      d = p * (d - (p * d).sum());
    }
  }
}

template <class T>
void gather_rows(int64_t count, int64_t columns, const int32_t* rows, const T* x, T* y) {
  for (int64_t i = 0; i < count; ++i) std::copy_n(x + rows[i] * columns, columns, y + i * columns);
}

template <class T>
void sum_rows(int64_t tokens, int64_t top, int64_t columns, const int32_t* rows, const T* x, T* y) {
  for (int64_t t = 0; t < tokens; ++t) {
    ArrayView<T> sum(y + t * columns, columns);
    sum = ConstArrayView<T>(x + rows[t * top] * columns, columns);
    for (int64_t j = 1; j < top; ++j) sum += ConstArrayView<T>(x + rows[t * top + j] * columns, columns);
  }
}

template <class T>
void scale_rows(int64_t rows, int64_t columns, const T* factors, const T* x, T* y) {
  for (int64_t r = 0; r < rows; ++r)
    ArrayView<T>(y + r * columns, columns) = ConstArrayView<T>(x + r * columns, columns) * factors[r];
}

template <class T>
void row_dots(int64_t rows, int64_t columns, const T* a, const T* b, T* dots) {
  for (int64_t r = 0; r < rows; ++r)
    dots[r] =
        (ConstArrayView<T>(a + r * columns, columns) * ConstArrayView<T>(b + r * columns, columns)).sum();
}

}  // namespace

void run(const Call& call, const RouterForward& o) {
  const RouterShape& s = o.shape;
  call.compute([&](auto& f) {
    router_forward(s, f.in(o.logits, s.tokens * s.experts), f.state(o.probabilities), o.chosen,
                   f.state(o.weights), f.in(o.bias, s.experts));
  });
}

void run(const Call& call, const RouterBackward& o) {
  const RouterShape& s = o.shape;
  call.compute([&](auto& f) {
    router_backward(s, f.state(o.probabilities), o.chosen, f.state(o.dweights), f.state(o.balance),
                    f.out(o.dlogits, s.tokens * s.experts));
  });
}

void run(const Call& call, const GatherRows& o) {
  call.copy([&]<class T>(const T*) {
    gather_rows(o.count, o.columns, o.rows, static_cast<const T*>(o.x), static_cast<T*>(o.y));
  });
}

void run(const Call& call, const SumRows& o) {
  call.compute([&](auto& f) {
    sum_rows(o.tokens, o.top, o.columns, o.rows, f.in(o.x, o.tokens * o.top * o.columns),
             f.out(o.y, o.tokens * o.columns));
  });
}

void run(const Call& call, const ScaleRows& o) {
  const int64_t count = o.rows * o.columns;
  call.compute([&](auto& f) {
    scale_rows(o.rows, o.columns, f.state(o.factors), f.in(o.x, count), f.out(o.y, count));
  });
}

void run(const Call& call, const RowDots& o) {
  const int64_t count = o.rows * o.columns;
  call.compute(
      [&](auto& f) { row_dots(o.rows, o.columns, f.in(o.a, count), f.in(o.b, count), f.state(o.dots)); });
}

}  // namespace mpt::runtime::cpu
