// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithms over all of a container. std::ranges is incomplete in some libraries that the planner compiles
// with.

#include <algorithm>

namespace mpt {

template <class Values, class T>
bool contains(const Values& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

template <class Values, class Predicate>
bool any_of(const Values& values, Predicate&& holds) {
  return std::any_of(values.begin(), values.end(), holds);
}

template <class Values, class Predicate>
bool all_of(const Values& values, Predicate&& holds) {
  return std::all_of(values.begin(), values.end(), holds);
}

template <class Values, class Predicate>
auto find_if(Values& values, Predicate&& holds) {
  return std::find_if(values.begin(), values.end(), holds);
}

/// Sorts by key; values with equal keys keep their order.
template <class Values, class Key>
void sort_by(Values& values, Key&& key) {
  std::stable_sort(values.begin(), values.end(),
                   [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

/// The first value with the largest key.
template <class Values, class Key>
auto max_by(Values& values, Key&& key) {
  return std::max_element(values.begin(), values.end(),
                          [&](const auto& a, const auto& b) { return key(a) < key(b); });
}

}  // namespace mpt
