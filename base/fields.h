// SPDX-License-Identifier: Apache-2.0
#pragma once

// One field list per struct drives JSON reading and writing, ranges, and the generated reference page.
//
// A struct that can be stored defines
//     static void describe(auto& v) {
//       v.field("layers", &ModelSpec::hidden, "width of the residual stream", between(1, 1 << 24));
//     }
// and an enum is stored by the names of its enumerators. Readers and writers are visitors (base/json.h),
// which reach a field by std::invoke(member, object).
// Most structs get members and describe() from a table in their folder, *.fields.json (cmake/fields.cmake).

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/text.h"

namespace mpt {

/// Allowed values of a field, and whether it is required. A text has at most kMostNameBytes unless its rule
/// is long_text(). No text holds control characters (base/text.h).
struct FieldRule {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool required = true;
  size_t most_text_bytes = kMostNameBytes;
  bool omits_default = false;  // not written where it has the struct's default
  // For a field that is also an option of a program: the heading in its help, and the placeholder of its
  // value. Null: the field is no option.
  const char* heading = nullptr;
  const char* placeholder = nullptr;
};

constexpr FieldRule between(double minimum, double maximum) { return {minimum, maximum}; }
constexpr FieldRule at_least(double minimum) { return {minimum, std::numeric_limits<double>::infinity()}; }
/// For sentences, lists and the like.
constexpr FieldRule long_text() {
  FieldRule rule;
  rule.most_text_bytes = std::numeric_limits<size_t>::max();
  return rule;
}
/// The field may be absent; the struct's default then holds. Never for a field that changes a result.
constexpr FieldRule optional_field(FieldRule rule = {}) {
  rule.required = false;
  return rule;
}

/// The field is absent, in files too, if it has the struct's default. For properties that few values have.
constexpr FieldRule rare_field(FieldRule rule = {}) {
  rule.required = false;
  rule.omits_default = true;
  return rule;
}

/// A field that a program's option sets, too: absent means the default.
constexpr FieldRule option_field(const char* heading, const char* placeholder, FieldRule rule = {}) {
  rule.required = false;
  rule.omits_default = true;
  rule.heading = heading;
  rule.placeholder = placeholder;
  return rule;
}

/// A value given by its name or path, or in full. In JSON it is a text or an object.
template <class T>
struct NameOr {
  std::string name;
  std::optional<T> value;

  bool empty() const { return name.empty() && !value; }
  bool operator==(const NameOr&) const = default;
};

/// Whether T is made from a template: a list, an optional value, a map.
template <class T, template <class...> class Of>
inline constexpr bool is_a = false;
template <template <class...> class Of, class... Parts>
inline constexpr bool is_a<Of<Parts...>, Of> = true;

/// The type of a field of T that a visitor gets as `Member`.
template <class T, class Member>
using FieldType = std::remove_cvref_t<std::invoke_result_t<Member, T&>>;

namespace detail {
// Hands the fields of a member of Owner to a visitor of Owner.
template <class V, class Owner, class Part>
struct PartVisitor {
  V& visitor;
  Part Owner::*part;
  template <class Member>
  void field(const char* name, Member member, const char* doc, FieldRule rule = {}) {
    const auto of_owner = [ part = part, member ](auto& owner) -> auto& {
      return std::invoke(member, owner.*part);
    };
    visitor.field(name, of_owner, doc, rule);
  }
};

template <class F>
struct FieldCaller {
  F& f;
  template <class Member>
  void field(const char* name, Member member, const char* doc, FieldRule rule = {}) {
    f(name, member, doc, rule);
  }
};
}  // namespace detail

/// Describes the fields of a member as if they were fields of the struct that contains it.
template <class V, class Owner, class Part>
void describe_part(V& v, Part Owner::*part) {
  detail::PartVisitor<V, Owner, Part> inner{v, part};
  Part::describe(inner);
}

/// Calls f(name, member, doc, rule) for each field of a described struct, in order.
template <class T, class F>
void for_each_field(F&& f) {
  detail::FieldCaller<F> caller{f};
  T::describe(caller);
}

/// The rule of one member of a described struct, for code that reads the same quantity from another source.
template <class T, class M>
FieldRule rule_of(M T::*wanted) {
  FieldRule found;
  for_each_field<T>([&](const char*, auto member, const char*, const FieldRule& rule) {
    if constexpr (std::is_same_v<decltype(member), M T::*>)
      if (member == wanted) found = rule;
  });
  return found;
}

namespace detail {
// "blue" of Color::blue, from the name that the compiler gives this function; "(Color)7" of a value without
// an enumerator. An enumerator that is a keyword of C++ has a trailing underscore, which is removed.
template <auto kEnumerator>
constexpr auto enumerator_name() {
  std::string_view text = __PRETTY_FUNCTION__;
  text = text.substr(text.rfind("= ") + 2);
  text.remove_suffix(1);
  text = text.substr(text.rfind(':') + 1);
  if (text.ends_with('_')) text.remove_suffix(1);
  return text;
}

template <class E, int kValue = 0>
void add_enum_names(std::vector<std::pair<E, std::string>>& names) {
  constexpr std::string_view name = enumerator_name<E(kValue)>();
  if constexpr (name.find(')') == std::string_view::npos) {
    names.emplace_back(E(kValue), name);
    add_enum_names<E, kValue + 1>(names);
  }
}
}  // namespace detail

/// The enumerators, with their names in files and options. The names are those in the code. The values must
/// be 0, 1, 2 and so on.
template <class E>
struct EnumNames {
  static const std::vector<std::pair<E, std::string>>& table() {
    static const std::vector<std::pair<E, std::string>> names = [] {
      std::vector<std::pair<E, std::string>> all;
      detail::add_enum_names(all);
      return all;
    }();
    return names;
  }
};

/// The stored name of an enum value.
template <class E>
const std::string& enum_name(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::table())
    if (candidate == value) return name;
  static const std::string unknown = "?";
  return unknown;
}

/// The enum value of a stored name, or nothing.
template <class E>
std::optional<E> enum_value(const std::string& name) {
  for (const auto& [value, candidate] : EnumNames<E>::table())
    if (candidate == name) return value;
  return std::nullopt;
}

template <class E>
std::vector<std::string> enum_names() {
  return mapped<std::string>(EnumNames<E>::table(), &std::pair<E, std::string>::second);
}

}  // namespace mpt
