// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_tokens.h"

#include <array>

#include "base/error.h"

namespace mpt::frameworks {
namespace {

bool starts_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Tokenizer {
 public:
  Tokenizer(std::string text, std::string file) : text_(std::move(text)), file_(std::move(file)) {}

  std::vector<LogicalLine> lines() {
    while (at_ < text_.size()) read_line();
    if (depth_ > 0) fail("a bracket that does not end");
    return std::move(lines_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    refuse_input(fmt::format("{} at line {}", file_, number_), what, "Python");
  }

  // One physical line. It continues the last logical line inside brackets or after a backslash.
  void read_line() {
    const size_t begin = at_;
    if (depth_ == 0 && !continued_) {
      while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
      lines_.push_back({number_, int64_t(at_ - begin), "", {}});
      lines_.back().source = text_.substr(at_, text_.find('\n', at_) - at_);
    }
    continued_ = false;
    while (at_ < text_.size() && text_[at_] != '\n') read_token();
    ++at_;
    ++number_;
    if (depth_ == 0 && !continued_ && lines_.back().tokens.empty()) lines_.pop_back();
  }

  void read_token() {
    const char c = text_[at_];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else if (c == '#') {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      continued_ = true;
      ++at_;
    } else if (c == '"' || c == '\'') {
      read_text("");
    } else if (starts_name(c)) {
      read_name();
    } else if (is_digit(c)) {
      read_number();
    } else {
      read_sign(c);
    }
  }

  void read_number() {
    const size_t begin = at_;
    while (at_ < text_.size() && (starts_name(text_[at_]) || is_digit(text_[at_]) || text_[at_] == '.' ||
                                  ((text_[at_] == '-' || text_[at_] == '+') && text_[at_ - 1] == 'e')))
      ++at_;
    add(TokenKind::number, text_.substr(begin, at_ - begin));
  }

  void read_sign(char c) {
    if (std::string_view("([{").find(c) != std::string_view::npos) ++depth_;
    if (std::string_view(")]}").find(c) != std::string_view::npos) depth_ = std::max<int64_t>(0, depth_ - 1);
    const std::string two = text_.substr(at_, 2);
    static constexpr std::array kTwo = {"//", "**", "==", "!=", "<=", ">=", "->"};
    const bool is_two = contains(kTwo, two);
    add(TokenKind::sign, is_two ? two : two.substr(0, 1));
    at_ += is_two ? 2 : 1;
  }

  void read_name() {
    const size_t begin = at_;
    while (at_ < text_.size() && (starts_name(text_[at_]) || is_digit(text_[at_]))) ++at_;
    const std::string name = text_.substr(begin, at_ - begin);
    const bool prefix = name.size() <= 2 && name.find_first_not_of("rRbBfFuU") == std::string::npos;
    if (prefix && at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\''))
      read_text(name);
    else
      add(TokenKind::name, name);
  }

  void read_text(const std::string& prefix) {
    const std::string three(3, text_[at_]);
    const bool is_long = text_.compare(at_, 3, three) == 0;
    const std::string end = is_long ? three : std::string(1, text_[at_]);
    at_ += end.size();
    std::string value;
    while (text_.compare(at_, end.size(), end) != 0) {
      if (at_ >= text_.size() || (!is_long && text_[at_] == '\n')) fail("a text that does not end");
      if (text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      if (text_[at_] == '\n') ++number_;
      value += text_[at_++];
    }
    at_ += end.size();
    const bool formatted = prefix.find_first_of("fFbB") != std::string::npos;
    add(formatted ? TokenKind::sign : TokenKind::text, formatted ? "f" : value);
  }

  void add(TokenKind kind, const std::string& text) { lines_.back().tokens.push_back({kind, text}); }

  std::string text_, file_;
  std::vector<LogicalLine> lines_;
  size_t at_ = 0;
  int64_t number_ = 1, depth_ = 0;
  bool continued_ = false;
};

}  // namespace

std::vector<LogicalLine> python_lines(std::string text, std::string file) {
  return Tokenizer(std::move(text), std::move(file)).lines();
}

}  // namespace mpt::frameworks
