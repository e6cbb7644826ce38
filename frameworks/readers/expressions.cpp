// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/expressions.h"

#include <cctype>
#include <charconv>

#include "base/error.h"
#include "frameworks/readers/python_file.h"

namespace mpt::frameworks {
namespace {

constexpr int kMostOpen = 16;
constexpr int64_t kMostPatternBytes = 1 << 18;

class Arithmetic {
 public:
  explicit Arithmetic(std::string_view text) : text_(text) {}

  std::optional<int64_t> all() {
    const auto value = sum(0);
    skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
  }
  char next() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  std::optional<int64_t> sum(int depth) {
    auto left = product(depth);
    for (char c = next(); left && (c == '+' || c == '-'); c = next()) {
      ++at_;
      const auto right = product(depth);
      int64_t result = 0;
      if (!right || (c == '+' ? __builtin_add_overflow(*left, *right, &result)
                              : __builtin_sub_overflow(*left, *right, &result)))
        return std::nullopt;
      left = result;
    }
    return left;
  }

  std::optional<int64_t> product(int depth) {
    auto left = atom(depth);
    for (char c = next(); left && (c == '*' || c == '/' || c == '%'); c = next()) {
      ++at_;
      const auto right = atom(depth);
      int64_t result = 0;
      if (!right) return std::nullopt;
      if (c == '*') {
        if (__builtin_mul_overflow(*left, *right, &result)) return std::nullopt;
      } else {
        if (*right == 0 || *right == -1) return std::nullopt;
        result = c == '/' ? *left / *right : *left % *right;
      }
      left = result;
    }
    return left;
  }

  std::optional<int64_t> atom(int depth) {
    if (next() == '(') {
      if (depth >= kMostOpen) return std::nullopt;
      ++at_;
      const auto inside = sum(depth + 1);
      if (next() != ')') return std::nullopt;
      ++at_;
      return inside;
    }
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) return std::nullopt;
    at_ = size_t(end - text_.data());
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<int64_t> arithmetic_value(std::string_view text) { return Arithmetic(text).all(); }

std::optional<std::vector<int64_t>> layer_pattern(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });  // that a shell left
  std::optional<Json> list;
  try {
    WorkBudget budget("", kMostPatternBytes);
    const std::vector<LogicalLine> lines = python_lines(text, "");
    if (lines.size() == 1) list = python_value(lines.front().tokens, 0, {}, budget);
  } catch (const UserError&) {
    return std::nullopt;
  }
  if (!list || !list->is_array()) return std::nullopt;
  std::vector<int64_t> layers;
  for (const Json& layer : *list) {
    if (layer != 0 && layer != 1) return std::nullopt;
    layers.push_back(layer.get<int64_t>());
  }
  return layers;
}

}  // namespace mpt::frameworks
