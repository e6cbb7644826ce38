// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "frameworks/import.h"
#include "frameworks/readers/python_tokens.h"

namespace mpt::frameworks {
namespace {

constexpr int kDeepestPython = 64;

// A statement that goes beyond what is understood.
struct NotUnderstood {};

using Names = std::map<std::string, Json>;

// Bounds the values of a file: a name may hold copies of another name, and so a short file a huge value.
class CopyBudget {
 public:
  explicit CopyBudget(std::string file) : file_(std::move(file)) {}

  const Json& spend(const Json& value) {
    ++spent_;
    constexpr int64_t kMost = 1 << 20;
    if (spent_ > kMost)
      throw UserError(Problem{file_, "names that stand for too many others", "a configuration", ""});
    if (value.is_structured()) {
      for (const Json& part : value) spend(part);
    }
    return value;
  }

 private:
  std::string file_;
  int64_t spent_ = 0;
};

// A function's result, with arguments in place of its parameters. `unused` are those that have no place.
Json with_arguments(const Json& result, const std::map<std::string, Json>& arguments, CopyBudget& budget,
                    std::set<std::string>& unused) {
  if (!result.is_structured()) return result;
  if (const auto name = result.find(kNameKey);
      result.is_object() && name != result.end() && name->is_string()) {
    const auto given = arguments.find(name->get<std::string>());
    unused.erase(name->get<std::string>());
    return given == arguments.end() ? result : budget.spend(given->second);
  }
  Json replaced = result;
  for (Json& part : replaced) part = with_arguments(part, arguments, budget, unused);
  return replaced;
}

// A function's result for a call; nothing where an argument is not understood to change it.
std::optional<Json> result_of_call(const PythonFunction& function, const Json& call, CopyBudget& budget) {
  std::map<std::string, Json> arguments(function.parameters.begin(), function.parameters.end());
  std::set<std::string> unused;
  size_t next = 0;
  for (const auto& [key, value] : call.items()) {
    if (key == kCallKey) continue;
    if (key != kArgumentsKey) {
      if (!arguments.contains(key)) return std::nullopt;
      arguments[key] = value;
      unused.insert(key);
      continue;
    }
    for (const Json& argument : value) {
      if (next == function.parameters.size()) return std::nullopt;
      unused.insert(function.parameters[next].first);
      arguments[function.parameters[next++].first] = argument;
    }
  }
  Json result = with_arguments(budget.spend(function.result), arguments, budget, unused);
  if (!unused.empty()) return std::nullopt;
  return result;
}

class ExpressionReader {
 public:
  ExpressionReader(const std::vector<PythonToken>& tokens, size_t at, const Names& locals,
                   const PythonFile& file, CopyBudget& budget, std::vector<std::string>& unread)
      : tokens_(tokens), at_(at), locals_(locals), file_(file), budget_(budget), unread_(unread) {}

  Json whole() {
    Json value = sum(0);
    if (at_ < tokens_.size()) throw NotUnderstood{};
    return value;
  }

 private:
  bool is_sign(const char* sign) const {
    return at_ < tokens_.size() && tokens_[at_].kind == TokenKind::sign && tokens_[at_].text == sign;
  }
  bool takes(const char* sign) {
    if (!is_sign(sign)) return false;
    ++at_;
    return true;
  }
  void expect(const char* sign) {
    if (!takes(sign)) throw NotUnderstood{};
  }

  static int64_t whole_number(const Json& value) {
    if (!value.is_number_integer()) throw NotUnderstood{};
    const auto number = value.get<int64_t>();
    if (number > (int64_t{1} << 31) || number < -(int64_t{1} << 31)) throw NotUnderstood{};
    return number;
  }

  Json sum(int depth) {
    Json value = product(depth);
    while (is_sign("+") || is_sign("-")) {
      const bool plus = tokens_[at_++].text == "+";
      const Json next = product(depth);
      if (plus && value.is_array() && next.is_array()) {
        value.insert(value.end(), next.begin(), next.end());
        continue;
      }
      value = plus ? whole_number(value) + whole_number(next) : whole_number(value) - whole_number(next);
    }
    return value;
  }

  Json product(int depth) {
    Json value = postfix(depth);
    while (is_sign("*") || is_sign("//")) {
      const bool times = tokens_[at_++].text == "*";
      const int64_t left = whole_number(value), right = whole_number(postfix(depth));
      if (!times && right == 0) throw NotUnderstood{};
      value = times ? left * right : left / right;
    }
    return value;
  }

  Json postfix(int depth) {
    if (depth > kDeepestPython || at_ >= tokens_.size()) throw NotUnderstood{};
    const PythonToken& token = tokens_[at_++];
    if (token.kind == TokenKind::text) {
      std::string value = token.text;
      while (at_ < tokens_.size() && tokens_[at_].kind == TokenKind::text) value += tokens_[at_++].text;
      return value;
    }
    if (token.kind == TokenKind::number) return number(token.text);
    if (token.kind == TokenKind::name) return name(token.text, depth);
    if (token.text == "-") {
      const Json value = postfix(depth + 1);
      if (value.is_number_float()) return -value.get<double>();
      return -whole_number(value);
    }
    if (token.text == "[") return list("]", depth);
    if (token.text == "(") return parenthesis(depth);
    if (token.text == "{") return dictionary(depth);
    throw NotUnderstood{};
  }

  static Json number(std::string text) {
    std::erase(text, '_');
    const char* end = text.data() + text.size();
    int64_t whole = 0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, whole);
        error == std::errc() && stop == end)
      return whole;
    double real = 0.0;
    if (const auto [stop, error] = std::from_chars(text.data(), end, real);
        error == std::errc() && stop == end)
      return real;
    throw NotUnderstood{};
  }

  Json list(const char* end, int depth) {
    Json items = Json::array();
    while (!takes(end)) {
      items.push_back(sum(depth + 1));
      if (!is_sign(end)) expect(",");
    }
    return items;
  }

  Json parenthesis(int depth) {
    const size_t begin = at_;
    Json items = list(")", depth);
    const bool tuple = at_ - begin > 1 && tokens_[at_ - 2].text == ",";
    return items.size() == 1 && !tuple ? items.front() : items;
  }

  Json dictionary(int depth) {
    Json map = Json::object();
    while (!takes("}")) {
      const Json key = sum(depth + 1);
      if (!key.is_string()) throw NotUnderstood{};
      expect(":");
      map[key.get<std::string>()] = sum(depth + 1);
      if (!is_sign("}")) expect(",");
    }
    return map;
  }

  Json name(std::string path, int depth) {
    if (path == "True" || path == "False") return path == "True";
    if (path == "None") return nullptr;
    if (path == "lambda" || path == "not" || path == "await") throw NotUnderstood{};
    while (takes(".")) {
      if (at_ >= tokens_.size() || tokens_[at_].kind != TokenKind::name) throw NotUnderstood{};
      path += "." + tokens_[at_++].text;
    }
    if (takes("(")) return call(path, depth);
    if (const auto found = locals_.find(path); found != locals_.end()) return budget_.spend(found->second);
    if (file_.values.contains(path)) return budget_.spend(file_.values[path]);
    return Json{{kNameKey, path}};
  }

  Json call(const std::string& function, int depth) {
    Json result = Json::object();
    result[kCallKey] = function;
    Json arguments = Json::array();
    while (!takes(")")) {
      const bool keyword = at_ + 1 < tokens_.size() && tokens_[at_].kind == TokenKind::name &&
                           tokens_[at_ + 1].kind == TokenKind::sign && tokens_[at_ + 1].text == "=";
      const std::string key = keyword ? tokens_[at_].text : "";
      if (keyword) at_ += 2;
      Json value = argument(key, depth);
      if (keyword) {
        result[key] = std::move(value);
      } else {
        arguments.push_back(std::move(value));
      }
      takes(",");
    }
    if (!arguments.empty()) result[kArgumentsKey] = std::move(arguments);
    for (const PythonFunction& known : file_.functions) {
      if (known.name != function || known.result.is_null()) continue;
      if (auto made = result_of_call(known, result, budget_)) return std::move(*made);
    }
    return result;
  }

  // Text that is not understood ends at the next comma. Its value is a name that nothing knows.
  Json argument(const std::string& keyword, int depth) {
    const size_t begin = at_;
    try {
      Json value = sum(depth + 1);
      if (is_sign(",") || is_sign(")")) return value;
    } catch (const NotUnderstood&) {
      if (depth >= kDeepestPython) throw;
    }
    at_ = begin;
    std::string text;
    int open = 0;
    for (; at_ < tokens_.size() && (open > 0 || (!is_sign(",") && !is_sign(")"))); ++at_) {
      if (is_sign("(") || is_sign("[") || is_sign("{")) ++open;
      if (is_sign(")") || is_sign("]") || is_sign("}")) --open;
      text += tokens_[at_].text;
    }
    if (at_ == begin || at_ >= tokens_.size()) throw NotUnderstood{};
    unread_.push_back(keyword);
    return Json{{kNameKey, cut_text(text, 60)}};
  }

  const std::vector<PythonToken>& tokens_;
  size_t at_;
  const Names& locals_;
  const PythonFile& file_;
  CopyBudget& budget_;
  std::vector<std::string>& unread_;
};

// Statement by statement: what gives a value to a name, and what returns one.
class ModuleReader {
 public:
  explicit ModuleReader(const std::string& file) : budget_(file) {}

  PythonFile read(const std::vector<LogicalLine>& lines) {
    for (const LogicalLine& line : lines) {
      if (line.indent == 0) finish_function();
      try {
        statement(line);
      } catch (const NotUnderstood&) {
        tell_unread(line, "");
      }
    }
    finish_function();
    return std::move(file_);
  }

 private:
  void finish_function() {
    if (function_) file_.functions.push_back(std::move(*function_));
    function_.reset();
    locals_.clear();
  }

  void tell_unread(const LogicalLine& line, const std::string& argument) {
    if (!function_) return;
    const std::string text = argument.empty() ? std::string(cut_text(line.source, 60)) : argument + "=...";
    function_->unread.push_back({argument, fmt::format("line {}: {}", line.number, text)});
  }

  Json value(const LogicalLine& line, size_t at) {
    std::vector<std::string> unread;
    Json value = ExpressionReader(line.tokens, at, locals_, file_, budget_, unread).whole();
    for (const std::string& argument : unread) tell_unread(line, argument);
    return value;
  }

  // def name(a, b: int = 2, *, c=None) -> Returns:
  void begin_function(const LogicalLine& line) {
    const std::vector<PythonToken>& tokens = line.tokens;
    function_ = PythonFunction{tokens[1].text, "", {}, nullptr, {}};
    size_t at = 3;
    for (int open = 1; at < tokens.size() && open > 0; ++at) {
      open += tokens[at].opens() - tokens[at].closes();
      if (open == 1) take_parameter(tokens, at);
    }
    if (at >= tokens.size() || tokens[at].text != "->") return;
    for (++at; at + 1 < tokens.size(); ++at) function_->returns += tokens[at].text;
  }

  // A name begins a parameter, and "=" its default.
  void take_parameter(const std::vector<PythonToken>& tokens, size_t at) {
    const PythonToken& token = tokens[at];
    const bool begins = tokens[at - 1].is(",") || tokens[at - 1].is("(");
    if (begins && token.kind == TokenKind::name)
      function_->parameters.emplace_back(token.text, Json{{kNameKey, token.text}});
    if (token.is("=") && !function_->parameters.empty())
      function_->parameters.back().second = literal(tokens, at + 1);
  }

  // A default that is one word, a number or a text; null for others.
  static Json literal(const std::vector<PythonToken>& tokens, size_t at) {
    if (at >= tokens.size()) return nullptr;
    const PythonToken& token = tokens[at];
    if (token.kind == TokenKind::text) return token.text;
    if (token.text == "True" || token.text == "False") return token.text == "True";
    int64_t number = 0;
    const char* const end = token.text.data() + token.text.size();
    const auto [stop, error] = std::from_chars(token.text.data(), end, number);
    return error == std::errc() && stop == end ? Json(number) : Json(nullptr);
  }

  void statement(const LogicalLine& line) {
    const std::vector<PythonToken>& tokens = line.tokens;
    const std::string& first = tokens.front().text;
    if (tokens.front().kind == TokenKind::text && tokens.size() == 1) return;  // a docstring
    if (first == "from" && line.indent == 0) return read_import(tokens);
    if (first == "def" && line.indent == 0 && tokens.size() > 1) return begin_function(line);
    if (first == "import" || first == "from" || first == "class" || first == "@" || first == "assert") return;
    if (first == "return" && function_) {
      function_->result = value(line, 1);
      return;
    }
    if (tokens.front().kind != TokenKind::name || (line.indent > 0 && !function_)) throw NotUnderstood{};
    assignment(line);
  }

  void read_import(const std::vector<PythonToken>& tokens) {
    std::string module;
    size_t at = 1;
    for (; at < tokens.size() && tokens[at].text != "import"; ++at) module += tokens[at].text;
    for (++at; at < tokens.size(); ++at) {
      if (tokens[at].kind != TokenKind::name) continue;
      if (at + 2 < tokens.size() && tokens[at + 1].text == "as") at += 2;
      file_.imports[tokens[at].text] = module;
    }
  }

  // name = value, name: type = value, name.part.part = value
  void assignment(const LogicalLine& line) {
    const std::vector<PythonToken>& tokens = line.tokens;
    std::vector<std::string> path{tokens.front().text};
    size_t at = 1;
    while (at + 1 < tokens.size() && tokens[at].text == "." && tokens[at + 1].kind == TokenKind::name) {
      path.push_back(tokens[at + 1].text);
      at += 2;
    }
    if (at < tokens.size() && tokens[at].text == ":") {
      while (at < tokens.size() && tokens[at].text != "=") ++at;
    }
    if (at >= tokens.size() || tokens[at].text != "=") throw NotUnderstood{};
    Json given = value(line, at + 1);
    if (!function_) {
      if (path.size() == 1) file_.values[path.front()] = std::move(given);
      return;
    }
    Json* place = &locals_[path.front()];
    for (size_t i = 1; i < path.size(); ++i) {
      if (!place->is_object()) *place = Json::object();
      place = &(*place)[path[i]];
    }
    *place = std::move(given);
  }

  PythonFile file_;
  CopyBudget budget_;
  std::optional<PythonFunction> function_;
  Names locals_;
};

}  // namespace

PythonFile read_python(const std::filesystem::path& file) {
  return ModuleReader(file.string()).read(python_lines(read_file(file, kMostImportedBytes), file.string()));
}

std::optional<Json> python_value(const std::vector<PythonToken>& tokens, size_t at,
                                 const std::map<std::string, Json>& names) {
  const PythonFile file;
  CopyBudget budget("");
  std::vector<std::string> unread;
  try {
    return ExpressionReader(tokens, at, names, file, budget, unread).whole();
  } catch (const NotUnderstood&) {
    return std::nullopt;
  }
}

std::string python_text(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  std::string items;
  if (value.is_array()) {
    for (const Json& item : value) items += (items.empty() ? "" : ", ") + python_text(item);
    return "[" + items + "]";
  }
  if (!value.is_object()) return json_text(value);
  for (const auto& [key, item] : value.items())
    items += fmt::format("{}{}: {}", items.empty() ? "" : ", ", json_text(key), python_text(item));
  return "{" + items + "}";
}

}  // namespace mpt::frameworks
