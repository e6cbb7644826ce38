// SPDX-License-Identifier: Apache-2.0
#pragma once

// Described fields from and to the words of a command line, over the field lists of base/fields.h.

#include <algorithm>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/text.h"

namespace mpt {

/// "cp_method" is --cp-method.
inline std::string option_of(std::string field) {
  std::replace(field.begin(), field.end(), '_', '-');
  return "--" + field;
}

namespace detail {

template <class T>
struct ElementOf {
  using type = T;
};
template <class E>
struct ElementOf<std::vector<E>> {
  using type = E;
};
template <class E>
struct ElementOf<std::optional<E>> {
  using type = E;
};
template <class E>
struct ElementOf<NameOr<E>> {
  using type = std::string;
};

/// "from 1 to 256", "from 1": a rule's range for people.
std::string range_words(const FieldRule& rule);
[[noreturn]] void refuse_word(const std::string& option, const std::string& word, const std::string& expected,
                              const std::vector<std::string>& known = {});

template <class E>
E element_of_word(const std::string& word, const std::string& option, const FieldRule& rule) {
  if constexpr (std::is_same_v<E, std::string>) {
    return word;
  } else if constexpr (std::is_enum_v<E>) {
    if (const auto value = enum_value<E>(word)) return *value;
    refuse_word(option, word, one_of(enum_names<E>()), enum_names<E>());
  } else {
    const auto value = number_of<E>(word);
    if (!value || !(double(*value) >= rule.minimum) || !(double(*value) <= rule.maximum))
      refuse_word(option, word, (std::is_integral_v<E> ? "whole numbers " : "numbers ") + range_words(rule));
    return *value;
  }
}

template <class E>
std::string word_of_element(const E& value) {
  if constexpr (std::is_same_v<E, std::string>)
    return value;
  else if constexpr (std::is_enum_v<E>)
    return enum_name(value);
  else
    return std::to_string(value);
}

}  // namespace detail

/// Sets a field from the words that `option` got. Throws UserError that names the option.
template <class M>
void set_from_words(M& field, const std::vector<std::string>& words, const std::string& option,
                    const FieldRule& rule) {
  using E = typename detail::ElementOf<M>::type;
  const auto read = [&](const std::string& word) { return detail::element_of_word<E>(word, option, rule); };
  if constexpr (is_a<M, std::vector>) {
    field.clear();
    for (const std::string& word : words) field.push_back(read(word));
  } else if constexpr (is_a<M, NameOr>) {
    field = {words.back(), {}};
  } else {
    field = read(words.back());
  }
}

}  // namespace mpt
