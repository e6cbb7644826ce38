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
constexpr size_t kMostLetters = 4096;
constexpr int kMostNested = 8;

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

class Expander {
 public:
  explicit Expander(std::string_view text) : text_(text) {}

  /// Without repetitions.
  std::optional<std::string> all() {
    auto expanded = sequence(0);
    return at_ == text_.size() ? expanded : std::nullopt;
  }

 private:
  // Up to the end or the parenthesis that closes it.
  std::optional<std::string> sequence(int depth) {
    std::string out;
    while (at_ < text_.size() && text_[at_] != ')') {
      const auto item = repeated(depth);
      if (!item || out.size() + item->size() > kMostLetters) return std::nullopt;
      out += *item;
    }
    return out;
  }

  std::optional<std::string> repeated(int depth) {
    std::string once;
    if (text_[at_] == '(') {
      ++at_;
      const auto inside = depth < kMostNested ? sequence(depth + 1) : std::nullopt;
      if (!inside || at_ == text_.size()) return std::nullopt;
      once = *inside;
    } else if (std::string_view("EtmL|").find(text_[at_]) != std::string_view::npos) {
      once = text_[at_];
    } else if (text_[at_] != ' ' && text_[at_] != ',') {
      return std::nullopt;
    }
    ++at_;
    if (at_ == text_.size() || text_[at_] != '*') return once;
    size_t times = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_ + 1, text_.data() + text_.size(), times);
    if (error != std::errc() || times > kMostLetters || times * once.size() > kMostLetters)
      return std::nullopt;
    at_ = size_t(end - text_.data());
    std::string out;
    for (size_t i = 0; i < times; ++i) out += once;
    return out;
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

std::optional<std::string> expanded_layout(std::string_view text) {
  auto expanded = Expander(text).all();
  if (!expanded || !expanded->starts_with('E') || !expanded->ends_with('L')) return std::nullopt;
  return expanded;
}

std::optional<std::vector<int64_t>> decoder_layers_of_stages(std::string_view text) {
  const auto expanded = expanded_layout(text);
  if (!expanded) return std::nullopt;
  std::vector<int64_t> stages{0};
  for (const char c : *expanded) {
    if (c == '|') stages.push_back(0);
    if (c == 't') ++stages.back();
  }
  return stages;
}

}  // namespace mpt::frameworks
