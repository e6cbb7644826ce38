// SPDX-License-Identifier: Apache-2.0
#pragma once

// Algorithms over all of a container. std::ranges is incomplete in some libraries that the planner compiles
// with.

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>
#include <vector>

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

/// The first value for which `holds`, or null.
template <class Values, class Predicate>
auto* first_if(Values& values, Predicate&& holds) {
  const auto found = std::find_if(std::begin(values), std::end(values), holds);
  return found == std::end(values) ? nullptr : &*found;
}

/// What `of` gives for each value: a function of it, or a member.
template <class T, class Values, class F>
std::vector<T> mapped(Values&& values, F&& of) {
  std::vector<T> all;
  for (auto&& value : values) all.emplace_back(std::invoke(of, value));
  return all;
}

/// The same for each value for which `holds`.
template <class T, class Values, class Predicate, class F>
std::vector<T> mapped_if(Values&& values, Predicate&& holds, F&& of) {
  std::vector<T> all;
  for (auto&& value : values)
    if (std::invoke(holds, value)) all.emplace_back(std::invoke(of, value));
  return all;
}

/// The sum of what `of` gives for each value.
template <class T, class Values, class F>
T sum_of(const Values& values, F&& of) {
  T sum{};
  for (const auto& value : values) sum += std::invoke(of, value);
  return sum;
}

/// The largest of `least` and of what `of` gives for each value.
template <class T, class Values, class F>
T max_of(const Values& values, T least, F&& of) {
  for (const auto& value : values) least = std::max<T>(least, std::invoke(of, value));
  return least;
}

/// The value of a key in a map, or null.
template <class Map, class Key = typename Map::key_type>
auto* find_value(Map& map, const Key& key) {
  const auto found = map.find(key);
  return found == map.end() ? nullptr : &found->second;
}

/// A copy of the value of a key in a map.
template <class Map, class Key = typename Map::key_type>
std::optional<typename Map::mapped_type> copy_of(const Map& map, const Key& key) {
  const auto* const found = find_value(map, key);
  return found == nullptr ? std::nullopt : std::optional(*found);
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
