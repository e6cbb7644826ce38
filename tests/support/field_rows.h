// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables of documents from field lists: one row for each field.

#include <fmt/format.h>

#include <string>
#include <type_traits>

#include "base/json.h"

namespace mpt::test {

inline std::string number_text(double number) { return fmt::format("{:.15g}", number); }

template <class M>
std::string type_text(const FieldRule& rule) {
  if constexpr (std::is_same_v<M, bool>) {
    return "true or false";
  } else if constexpr (std::is_arithmetic_v<M>) {
    return fmt::format("{} to {}", number_text(rule.minimum), number_text(rule.maximum));
  } else if constexpr (std::is_same_v<M, std::string>) {
    return "text";
  } else if constexpr (std::is_enum_v<M>) {
    std::string names;
    for (const std::string& name : enum_names<M>()) names += (names.empty() ? "" : ", ") + ("`" + name + "`");
    return names;
  } else if constexpr (is_a<M, std::optional>) {
    return type_text<typename M::value_type>(rule);
  } else if constexpr (is_a<M, std::vector>) {
    return "list";
  } else {
    return "object";
  }
}

struct FieldRows {
  std::string rows;

  template <class M, class T>
  void field(const char* name, M T::*, const char* doc, FieldRule rule = {}) {
    const bool needed = rule.required && !is_a<M, std::optional>;
    rows += fmt::format("| `{}`{} | {} | {} |\n", name, needed ? "" : " (may be absent)", doc,
                        type_text<M>(rule));
  }
};

template <class T>
std::string rows_of() {
  FieldRows writer;
  T::describe(writer);
  return writer.rows;
}

}  // namespace mpt::test
