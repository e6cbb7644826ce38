// SPDX-License-Identifier: Apache-2.0
#pragma once

// The members of an aggregate, one by one, so that what is said of all of them forgets none.

#include <cstddef>
#include <utility>

namespace mpt::runtime::cuda {

struct AnyMember {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): it stands for a member of any type
};

/// How many members an aggregate has: with one initializer more it could not be made.
template <class Aggregate, class... Known>
consteval size_t member_count() {
  if constexpr (requires { Aggregate{std::declval<Known>()..., AnyMember()}; }) {
    return member_count<Aggregate, Known..., AnyMember>();
  } else {
    return sizeof...(Known);
  }
}

/// Calls `visit` with each member of an aggregate of 2 to 11, in order.
template <class Aggregate, class Visit>
void for_each_member(Aggregate& of, Visit&& visit) {
  constexpr size_t count = member_count<Aggregate>();
  static_assert(count >= 2 && count <= 11);
  const auto all = [&](auto&... members) { (visit(members), ...); };
  if constexpr (count == 2) {
    auto& [a, b] = of;
    all(a, b);
  } else if constexpr (count == 3) {
    auto& [a, b, c] = of;
    all(a, b, c);
  } else if constexpr (count == 4) {
    auto& [a, b, c, d] = of;
    all(a, b, c, d);
  } else if constexpr (count == 5) {
    auto& [a, b, c, d, e] = of;
    all(a, b, c, d, e);
  } else if constexpr (count == 6) {
    auto& [a, b, c, d, e, f] = of;
    all(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    auto& [a, b, c, d, e, f, g] = of;
    all(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    auto& [a, b, c, d, e, f, g, h] = of;
    all(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    auto& [a, b, c, d, e, f, g, h, i] = of;
    all(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    auto& [a, b, c, d, e, f, g, h, i, j] = of;
    all(a, b, c, d, e, f, g, h, i, j);
  } else {
    auto& [a, b, c, d, e, f, g, h, i, j, k] = of;
    all(a, b, c, d, e, f, g, h, i, j, k);
  }
}

}  // namespace mpt::runtime::cuda
