// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/expressions.h"

#include <charconv>

#include "base/error.h"
#include "frameworks/readers/python_file.h"

namespace mpt::frameworks {
namespace {

constexpr int64_t kMostPatternBytes = 1 << 18;
constexpr size_t kMostLetters = 4096;
constexpr int kMostNested = 8;

// Null where the text is no expression of one line.
Json value_of_text(const std::string& text) {
  if (text.find('\n') != std::string::npos) return {};
  try {
    WorkBudget budget("", kMostPatternBytes);
    Json values = python_file("x = " + text, budget).values;
    return values.contains("x") ? std::move(values["x"]) : Json();
  } catch (const UserError&) {  // brackets or texts that do not end
    return {};
  }
}

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

std::optional<int64_t> arithmetic_value(const std::string& text) {
  std::string python;
  for (const char c : text) python.append(c == '/' ? 2 : 1, c);
  const auto value = value_of_text(python);
  return value.is_number_integer() ? std::optional(value.get<int64_t>()) : std::nullopt;
}

std::optional<std::vector<int64_t>> layer_pattern(std::string text) {
  std::erase_if(text, [](char c) { return c == '\'' || c == '"'; });  // that a shell left
  const auto list = value_of_text(text);
  if (!list.is_array()) return std::nullopt;
  std::vector<int64_t> layers;
  for (const Json& layer : list) {
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
