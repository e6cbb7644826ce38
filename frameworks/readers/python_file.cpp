// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_file.h"

#include <fmt/format.h>

#include <functional>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "frameworks/import.h"
#include "frameworks/readers/python_tokens.h"

namespace mpt::frameworks {
namespace {

constexpr int kDeepestPython = 64;
constexpr int64_t kMostRepeated = 100'000;  // items of a list that is repeated

// A statement that goes beyond what is understood.
struct NotUnderstood {};

// Gives a copy of a name's value; nothing for an unknown name.
using Names = std::function<std::optional<Json>(const std::string&)>;

// Gives the result of a call; nothing for a function that is not known, or does not take the call.
using Calls = std::function<std::optional<Json>(const std::string&, const Json&)>;

// Puts arguments in place of parameters. `unused` are those that have no place.
void put_arguments(Json& result, const std::map<std::string, Json>& arguments, WorkBudget& budget,
                   std::set<std::string>& unused) {
  if (!result.is_structured()) return;
  if (const auto name = result.find(kNameKey);
      result.is_object() && name != result.end() && name->is_string()) {
    const auto given = arguments.find(name->get_ref<const std::string&>());
    unused.erase(name->get_ref<const std::string&>());
    if (given != arguments.end()) result = Json(budget.copy(given->second));
    return;
  }
  for (Json& part : result) put_arguments(part, arguments, budget, unused);
}

// A function's result for a call; nothing where an argument is not understood to change it.
std::optional<Json> result_of_call(const PythonFunction& function, const Json& call, WorkBudget& budget) {
  std::map<std::string, Json> arguments;
  for (const auto& [name, value] : function.parameters) arguments[name] = budget.copy(value);
  std::set<std::string> unused;
  size_t next = 0;
  for (const auto& [key, value] : call.items()) {
    if (key == kCallKey) continue;
    if (key != kArgumentsKey) {
      if (!arguments.contains(key)) return std::nullopt;
      arguments[key] = budget.copy(value);
      unused.insert(key);
      continue;
    }
    for (const Json& argument : value) {
      if (next == function.parameters.size()) return std::nullopt;
      unused.insert(function.parameters[next].first);
      arguments[function.parameters[next++].first] = budget.copy(argument);
    }
  }
  Json result = budget.copy(function.result);
  put_arguments(result, arguments, budget, unused);
  if (!unused.empty()) return std::nullopt;
  return result;
}

class ExpressionReader {
 public:
  ExpressionReader(const std::vector<PythonToken>& tokens, size_t at, const Names& names, const Calls& calls,
                   WorkBudget& budget, std::vector<std::string>& unread)
      : tokens_(tokens), at_(at), names_(names), calls_(calls), budget_(budget), unread_(unread) {}

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
      const int64_t right = whole_number(postfix(depth));
      if (times && value.is_array()) {
        value = repeated(value, right);
        continue;
      }
      const int64_t left = whole_number(value);
      if (!times && right == 0) throw NotUnderstood{};
      value = times ? left * right : left / right;
    }
    return value;
  }

  Json repeated(const Json& list, int64_t times) {
    if (times < 0 || times > kMostRepeated / int64_t(std::max<size_t>(1, list.size()))) throw NotUnderstood{};
    Json all = Json::array();
    for (int64_t i = 0; i < times; ++i) {
      const Json& once = budget_.copy(list);
      all.insert(all.end(), once.begin(), once.end());
    }
    return all;
  }

  Json postfix(int depth) {
    if (depth > kDeepestPython || at_ >= tokens_.size()) throw NotUnderstood{};
    const PythonToken& token = tokens_[at_++];
    budget_.spend(WorkBudget::kValueSteps + token.text.size());
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
    if (const auto whole = number_of<int64_t>(text)) return *whole;
    if (const auto real = number_of<double>(text)) return *real;
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
    ObjectBuilder map;
    while (!takes("}")) {
      const Json key = sum(depth + 1);
      if (!key.is_string()) throw NotUnderstood{};
      expect(":");
      map.set(key, sum(depth + 1), budget_);
      if (!is_sign("}")) expect(",");
    }
    return map.take();
  }

  Json name(std::string path, int depth) {
    if (path == "True" || path == "False") return path == "True";
    if (path == "None") return nullptr;
    if (path == "lambda" || path == "not" || path == "await") throw NotUnderstood{};
    while (takes(".")) {
      if (at_ >= tokens_.size() || tokens_[at_].kind != TokenKind::name) throw NotUnderstood{};
      path += "." + tokens_[at_++].text;
    }
    if (takes("(")) return methods(call(path, depth), depth);
    if (auto value = names_(path)) return std::move(*value);
    return Json{{kNameKey, path}};
  }

  // f(...).g(...)
  Json methods(Json made, int depth) {
    for (int i = 0; takes("."); ++i) {
      if (at_ >= tokens_.size() || tokens_[at_].kind != TokenKind::name || i == kDeepestPython)
        throw NotUnderstood{};
      const std::string method = tokens_[at_++].text;
      expect("(");
      Json next = call(method, depth, false);
      next[kOfKey] = std::move(made);
      made = std::move(next);
    }
    return made;
  }

  Json call(const std::string& function, int depth, bool looks_up = true) {
    ObjectBuilder made;
    made.set(kCallKey, function, budget_);
    Json arguments = Json::array();
    while (!takes(")")) {
      const bool keyword = at_ + 1 < tokens_.size() && tokens_[at_].kind == TokenKind::name &&
                           tokens_[at_ + 1].kind == TokenKind::sign && tokens_[at_ + 1].text == "=";
      const std::string key = keyword ? tokens_[at_].text : "";
      if (keyword) at_ += 2;
      Json value = argument(key, depth);
      if (keyword) {
        made.set(key, std::move(value), budget_);
      } else {
        arguments.push_back(std::move(value));
      }
      takes(",");
    }
    if (!arguments.empty()) made.set(kArgumentsKey, std::move(arguments), budget_);
    Json call = made.take();
    if (auto result = calls_ && looks_up ? calls_(function, call) : std::nullopt) return std::move(*result);
    return call;
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
  const Names& names_;
  const Calls& calls_;
  WorkBudget& budget_;
  std::vector<std::string>& unread_;
};

// A local name: the value that it was given, and members of it that were set later.
struct LocalValue {
  std::optional<Json> given;
  std::map<std::string, LocalValue> members;

  /// `before`: what the value was without this.
  Json whole(WorkBudget& budget, const Json& before = {}) const {
    const Json& base = given ? *given : before;
    if (members.empty()) return budget.copy(base);
    ObjectBuilder all;
    if (base.is_object()) all.set_all(base, budget);
    for (const auto& [name, member] : members) {
      const Json* const old = all.find(name);
      all.set(name, member.whole(budget, old == nullptr ? Json() : *old), budget);
    }
    return all.take();
  }
};

// Statement by statement: what gives a value to a name, and what returns one.
class ModuleReader {
 public:
  explicit ModuleReader(WorkBudget& budget) : budget_(budget) {}

  PythonFile read(const std::vector<LogicalLine>& lines) {
    lines_ = &lines;
    for (size_t i = 0; i < lines.size(); ++i) {
      const std::vector<PythonToken>& tokens = lines[i].tokens;
      if (lines[i].indent == 0 && tokens.size() > 1 && tokens.front().text == "def")
        ahead_[tokens[1].text] = i;
    }
    for (const LogicalLine& line : lines) {
      if (line.indent == 0) finish_function();
      guarded(line);
    }
    finish_function();
    return {values_.take(), std::move(imports_), std::move(functions_)};
  }

 private:
  void guarded(const LogicalLine& line) {
    try {
      statement(line);
    } catch (const NotUnderstood&) {
      tell_unread(line, "");
    }
  }

  void finish_function() {
    if (function_) {
      ahead_.erase(function_->name);
      places_[function_->name].push_back(functions_.size());
      functions_.push_back(std::move(*function_));
    }
    function_.reset();
    locals_.clear();
    body_indent_ = 0;
  }

  // A function may call one that stands further down. What is read so far waits.
  void read_ahead(const std::string& name) {
    const auto found = ahead_.find(name);
    if (found == ahead_.end() || depth_ == kDeepestPython) return;
    ++depth_;
    const size_t begin = found->second;
    ahead_.erase(found);
    auto function = std::exchange(function_, std::nullopt);
    auto locals = std::exchange(locals_, {});
    const int64_t indent = std::exchange(body_indent_, 0);
    for (size_t i = begin; i < lines_->size() && (i == begin || (*lines_)[i].indent > 0); ++i)
      guarded((*lines_)[i]);
    early_[name] = std::move(*function_);
    function_ = std::move(function);
    locals_ = std::move(locals);
    body_indent_ = indent;
    --depth_;
  }

  void tell_unread(const LogicalLine& line, const std::string& argument) {
    if (!function_) return;
    const std::string text = argument.empty() ? std::string(cut_text(line.source, 60)) : argument + "=...";
    function_->unread.push_back({argument, fmt::format("line {}: {}", line.number, text)});
  }

  Json value(const LogicalLine& line, size_t at) {
    std::vector<std::string> unread;
    const Names names = [&](const std::string& name) -> std::optional<Json> {
      if (const auto found = locals_.find(name); found != locals_.end()) return found->second.whole(budget_);
      const Json* known = values_.find(name);
      return known == nullptr ? std::nullopt : std::optional(budget_.copy(*known));
    };
    const Calls calls = [&](const std::string& name, const Json& call) -> std::optional<Json> {
      const auto found = places_.find(name);
      if (found == places_.end()) {
        read_ahead(name);
        const auto early = early_.find(name);
        if (early == early_.end() || early->second.result.is_null()) return std::nullopt;
        return result_of_call(early->second, call, budget_);
      }
      for (const size_t place : found->second) {
        budget_.spend(WorkBudget::kValueSteps);
        if (functions_[place].result.is_null()) continue;
        if (auto made = result_of_call(functions_[place], call, budget_)) return made;
      }
      return std::nullopt;
    };
    Json value = ExpressionReader(line.tokens, at, names, calls, budget_, unread).whole();
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
    const auto number = number_of<int64_t>(token.text);
    return number ? Json(*number) : Json(nullptr);
  }

  void statement(const LogicalLine& line) {
    const std::vector<PythonToken>& tokens = line.tokens;
    const std::string& first = tokens.front().text;
    if (tokens.front().kind == TokenKind::text && tokens.size() == 1) return;  // a docstring
    if (function_ && line.indent > 0) {
      if (body_indent_ == 0) body_indent_ = line.indent;
      if (line.indent > body_indent_) throw NotUnderstood{};
    }
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
      imports_[tokens[at].text] = module;
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
      if (path.size() == 1) values_.set(path.front(), std::move(given), budget_);
      return;
    }
    if (path.size() > size_t(kDeepestPython)) throw NotUnderstood{};
    LocalValue* place = &locals_[path.front()];
    for (size_t i = 1; i < path.size(); ++i) place = &place->members[path[i]];
    *place = {std::move(given), {}};
  }

  WorkBudget& budget_;
  ObjectBuilder values_;
  std::map<std::string, std::string> imports_;
  std::vector<PythonFunction> functions_;
  std::map<std::string, std::vector<size_t>> places_;  // of functions by their names
  std::optional<PythonFunction> function_;
  std::map<std::string, LocalValue> locals_;
  int64_t body_indent_ = 0;  // of the function's statements; 0: none was read
  const std::vector<LogicalLine>* lines_ = nullptr;
  std::map<std::string, size_t> ahead_;          // lines where functions begin that are not read yet
  std::map<std::string, PythonFunction> early_;  // those that were called before their place
  int depth_ = 0;
};

}  // namespace

PythonFile read_python(const std::filesystem::path& file) {
  WorkBudget budget(file.string(), kMostImportedBytes);
  return python_file(read_file(file, kMostImportedBytes), budget);
}

PythonFile python_file(const std::string& text, WorkBudget& budget) {
  budget.spend(text.size());
  return ModuleReader(budget).read(python_lines(text, budget.file()));
}

Json result_of(const PythonFunction& function, WorkBudget& budget) {
  return result_of_call(function, Json::object(), budget).value_or(Json());
}

std::optional<Json> python_value(const std::vector<PythonToken>& tokens, size_t at,
                                 const std::map<std::string, Json>& known, WorkBudget& budget) {
  const Names names = [&](const std::string& name) -> std::optional<Json> {
    const auto found = known.find(name);
    return found == known.end() ? std::nullopt : std::optional(budget.copy(found->second));
  };
  std::vector<std::string> unread;
  try {
    return ExpressionReader(tokens, at, names, nullptr, budget, unread).whole();
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
