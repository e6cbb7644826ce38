// SPDX-License-Identifier: Apache-2.0
#pragma once

// One field list per struct drives JSON reading and writing, ranges, and the generated reference page.
//
// A struct that can be stored defines
//     template <class V> static void describe(V& v) {
//       v.field("layers", &ModelSpec::layers, "number of decoder layers", between(1, 100000));
//     }
// and an enum that can be stored specialises EnumNames. Readers and writers are visitors (core/json.h).

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mpt {

/// What a field may hold, and whether it must be there.
struct FieldRule {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool required = true;
};

constexpr FieldRule between(double minimum, double maximum) { return {minimum, maximum, true}; }
constexpr FieldRule at_least(double minimum) {
  return {minimum, std::numeric_limits<double>::infinity(), true};
}
/// The field may be absent; the struct's default then holds. Never for a field that changes a result.
constexpr FieldRule optional_field(FieldRule rule = {}) { return {rule.minimum, rule.maximum, false}; }

/// Specialise with `static const std::vector<std::pair<E, std::string>>& table();`.
template <class E>
struct EnumNames;

/// The stored name of an enum value.
template <class E>
const std::string& enum_name(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::table()) {
    if (candidate == value) return name;
  }
  static const std::string unknown = "?";
  return unknown;
}

/// The enum value of a stored name, or nothing.
template <class E>
std::optional<E> enum_value(const std::string& name) {
  for (const auto& [value, candidate] : EnumNames<E>::table()) {
    if (candidate == name) return value;
  }
  return std::nullopt;
}

template <class E>
std::vector<std::string> enum_names() {
  std::vector<std::string> names;
  for (const auto& entry : EnumNames<E>::table()) names.push_back(entry.second);
  return names;
}

}  // namespace mpt

/// MPT_ENUM_NAMES(Color, {Color::red, "red"}, {Color::green, "green"}): at namespace mpt.
#define MPT_ENUM_NAMES(Enum, ...)                                                \
  template <>                                                                    \
  struct EnumNames<Enum> {                                                       \
    static const std::vector<std::pair<Enum, std::string>>& table() {            \
      static const std::vector<std::pair<Enum, std::string>> names{__VA_ARGS__}; \
      return names;                                                              \
    }                                                                            \
  }
