// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/expressions.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

namespace mpt::frameworks {
namespace {

constexpr int kMostOpen = 16;
constexpr size_t kMostLayers = 100'000;

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

class LayerPattern {
 public:
  explicit LayerPattern(std::string_view text) : text_(text) {}

  std::optional<std::vector<int64_t>> all() {
    auto value = sum(0);
    return next() == '\0' ? value : std::nullopt;
  }

 private:
  using Layers = std::optional<std::vector<int64_t>>;

  char next() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\'' || text_[at_] == '"')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }

  Layers sum(int depth) {
    Layers all = repeated(depth);
    while (all && next() == '+') {
      ++at_;
      const Layers more = repeated(depth);
      if (!more || all->size() + more->size() > kMostLayers) return std::nullopt;
      all->insert(all->end(), more->begin(), more->end());
    }
    return all;
  }

  Layers repeated(int depth) {
    Layers once = next() == '(' ? parenthesis(depth) : list();
    while (once && next() == '*') {
      ++at_;
      const auto times = number();
      if (!times || *times < 0 || size_t(*times) * std::max<size_t>(1, once->size()) > kMostLayers)
        return std::nullopt;
      const std::vector<int64_t> layers = *once;
      once->clear();
      for (int64_t i = 0; i < *times; ++i) once->insert(once->end(), layers.begin(), layers.end());
    }
    return once;
  }

  Layers parenthesis(int depth) {
    if (depth >= kMostOpen) return std::nullopt;
    ++at_;
    Layers inside = sum(depth + 1);
    if (next() != ')') return std::nullopt;
    ++at_;
    return inside;
  }

  Layers list() {
    if (next() != '[') return std::nullopt;
    ++at_;
    std::vector<int64_t> layers;
    while (next() != ']') {
      const auto value = number();
      if (!value || *value < 0 || *value > 1 || layers.size() >= kMostLayers) return std::nullopt;
      layers.push_back(*value);
      if (next() == ',') ++at_;
    }
    ++at_;
    return layers;
  }

  std::optional<int64_t> number() {
    next();
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

std::optional<std::vector<int64_t>> layer_pattern(std::string_view text) { return LayerPattern(text).all(); }

}  // namespace mpt::frameworks
