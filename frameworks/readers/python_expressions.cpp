// SPDX-License-Identifier: Apache-2.0
#include "frameworks/readers/python_expressions.h"

#include <array>

#include "base/json.h"
#include "frameworks/rules.h"

namespace mpt::frameworks {
namespace {

bool all_known(const Json& value) {
  if (value.is_object()) return !value.contains(kNameKey) && !value.contains(kCallKey);
  return !value.is_array() || all_of(value, all_known);
}

// The value of a comparison of unknown values. No expression has this value.
Json undecided() { return Json{{kNameKey, ""}}; }

std::string key_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : python_text(value);
}

Json compared(const Json& left, const std::string& sign, const Json& right) {
  if (!all_known(left) || !all_known(right)) return undecided();
  const bool within = sign.ends_with("in");
  const auto holds = within && right.is_object()
                         ? Json(right.contains(key_of(left)))
                         : computed(left, within ? "in" : sign, right).value_or(undecided());
  return sign == "not in" && holds.is_boolean() ? Json(!holds.get<bool>()) : holds;
}

int64_t whole_number(const Json& value) {
  if (!value.is_number_integer()) throw NotUnderstood{};
  return value.get<int64_t>();
}

Json number_result(const Json& left, const std::string& sign, const Json& right) {
  const auto result = computed(left, sign, right);
  if (!result || left.is_boolean() || right.is_boolean()) throw NotUnderstood{};
  const bool whole = left.is_number_integer() && right.is_number_integer();
  return whole ? Json(int64_t(result->get<double>())) : *result;
}

Json item_at(const Json& of, const Json& index) {
  if (of.is_object() && all_known(of) && all_known(index) && of.contains(key_of(index)))
    return of.at(key_of(index));
  const int64_t place = of.is_array() ? whole_number(index) : -1;
  if (place < 0 || place >= int64_t(of.size())) throw NotUnderstood{};
  return of[size_t(place)];
}

class ExpressionReader {
 public:
  ExpressionReader(const std::vector<PythonToken>& tokens, size_t at, size_t end, PythonScope& scope,
                   WorkBudget& budget, std::vector<std::string>& unread)
      : tokens_(tokens), at_(at), end_(end), scope_(scope), budget_(budget), unread_(unread) {}

  Json whole(int depth) {
    Json value = tuple(depth);
    if (at_ < end_) throw NotUnderstood{};
    return value;
  }

 private:
  bool is(TokenKind kind, const char* text) const {
    return at_ < end_ && tokens_[at_].kind == kind && tokens_[at_].text == text;
  }
  bool is_sign(const char* sign) const { return is(TokenKind::sign, sign); }
  bool takes(const char* sign) {
    if (!is_sign(sign)) return false;
    ++at_;
    return true;
  }
  bool takes_word(const char* word) {
    if (!is(TokenKind::name, word)) return false;
    ++at_;
    return true;
  }
  void expect(const char* sign) {
    if (!takes(sign)) throw NotUnderstood{};
  }

  // One value, or several separated by commas.
  Json tuple(int depth) {
    Json value = expression(depth);
    if (!is_sign(",")) return value;
    Json items = Json::array();
    items.push_back(std::move(value));
    while (takes(",") && at_ < end_ && !tokens_[at_].closes()) items.push_back(expression(depth));
    return items;
  }

  Json expression(int depth) {
    if (depth > kDeepestPython) throw NotUnderstood{};
    Json value = joined("or", depth);
    if (takes_word("if")) {
      const auto holds = python_truth(joined("or", depth + 1));
      if (!takes_word("else")) throw NotUnderstood{};
      Json otherwise = expression(depth + 1);
      if (!holds) throw NotUnderstood{};
      if (!*holds) value = std::move(otherwise);
    }
    if (value == undecided()) throw NotUnderstood{};
    return value;
  }

  // Values joined by "or"; each consists of values joined by "and".
  Json joined(const char* word, int depth) {
    const bool any = std::string_view(word) == "or";
    const auto part = [&] { return any ? joined("and", depth) : negated(depth); };
    Json value = part();
    while (takes_word(word)) {
      Json next = part();
      const auto holds = python_truth(value);
      if (!holds || *holds != any) value = holds ? std::move(next) : undecided();
    }
    return value;
  }

  Json negated(int depth) {
    if (!takes_word("not")) return comparison(depth);
    if (depth > kDeepestPython) throw NotUnderstood{};
    const auto holds = python_truth(negated(depth + 1));
    return holds ? Json(!*holds) : undecided();
  }

  Json comparison(int depth) {
    static constexpr std::array kSigns = {"==", "!=", "<", "<=", ">", ">="};
    Json left = sum(depth);
    std::string sign;
    if (at_ < end_ && tokens_[at_].kind == TokenKind::sign && contains(kSigns, tokens_[at_].text)) {
      sign = tokens_[at_++].text;
    } else if (takes_word("is")) {
      sign = takes_word("not") ? "!=" : "==";
    } else {
      sign = takes_word("not") ? "not in" : "in";
      const bool within = takes_word("in");
      if (!within && sign == "not in") throw NotUnderstood{};
      if (!within) return left;
    }
    return compared(left, sign, sum(depth));
  }

  Json sum(int depth) {
    Json value = product(depth);
    while (is_sign("+") || is_sign("-")) {
      const std::string sign = tokens_[at_++].text;
      const Json next = product(depth);
      const bool texts = sign == "+" && value.is_string() && next.is_string();
      value =
          texts ? Json(value.get<std::string>() + next.get<std::string>()) : number_result(value, sign, next);
    }
    return value;
  }

  Json product(int depth) {
    Json value = postfix(depth);
    while (is_sign("*") || is_sign("//") || is_sign("%")) {
      const std::string sign = tokens_[at_++].text;
      const Json right = postfix(depth);
      const bool repeats = sign == "*" && (value.is_array() || value.is_string());
      value = repeats ? repeated(value, whole_number(right)) : number_result(value, sign, right);
    }
    return value;
  }

  Json repeated(const Json& once, int64_t times) {
    const size_t size = once.is_string() ? once.get_ref<const std::string&>().size() : once.size();
    if (times < 0 || times > kMostRepeated / int64_t(std::max<size_t>(1, size))) throw NotUnderstood{};
    Json all = Json::array();
    std::string text;
    for (int64_t i = 0; i < times; ++i) {
      budget_.copy(once);
      if (once.is_string()) text += once.get_ref<const std::string&>();
      if (once.is_array()) all.insert(all.end(), once.begin(), once.end());
    }
    return once.is_string() ? Json(text) : all;
  }

  Json postfix(int depth) {
    Json value = primary(depth);
    while (takes("[")) {
      const Json index = tuple(depth + 1);
      expect("]");
      value = item_at(value, index);
    }
    return value;
  }

  Json primary(int depth) {
    if (depth > kDeepestPython || at_ >= end_) throw NotUnderstood{};
    const PythonToken& token = tokens_[at_++];
    budget_.spend(WorkBudget::kValueSteps + token.text.size());
    if (token.kind == TokenKind::text) return text(token.text, depth);
    if (token.kind == TokenKind::number) return number(token.text);
    if (token.kind == TokenKind::name) return name(token.text, depth);
    if (token.text == "-") return number_result(0, "-", postfix(depth + 1));
    if (token.text == "[") return list("]", depth);
    if (token.text == "(") return parenthesis(depth);
    if (token.text == "{") return dictionary(depth);
    throw NotUnderstood{};
  }

  Json text(std::string value, int depth) {
    while (at_ < end_ && tokens_[at_].kind == TokenKind::text) value += tokens_[at_++].text;
    if (!takes(".")) return value;
    if (!takes_word("join")) throw NotUnderstood{};
    expect("(");
    const Json parts = tuple(depth + 1);
    expect(")");
    std::string all;
    for (const Json& part : parts) {
      if (!part.is_string()) throw NotUnderstood{};
      all += (&part == &parts.front() ? "" : value) + part.get<std::string>();
    }
    return all;
  }

  static Json number(std::string text) {
    std::erase(text, '_');
    if (const auto whole = number_of<int64_t>(text)) return *whole;
    if (const auto real = number_of<double>(text)) return *real;
    throw NotUnderstood{};
  }

  Json list(const char* end, int depth) {
    Json items = Json::array();
    const size_t begin = at_;
    while (!takes(end)) {
      items.push_back(expression(depth + 1));
      if (is(TokenKind::name, "for") && items.size() == 1) return comprehension(begin, end, depth);
      if (!is_sign(end)) expect(",");
    }
    return items;
  }

  // [f(x) for x in list]; the reader is at "for".
  Json comprehension(size_t begin, const char* end, int depth) {
    const size_t variable = at_ + 1;
    at_ += 2;
    if (!takes_word("in")) throw NotUnderstood{};
    const Json all = joined("or", depth + 1);
    const size_t behind = at_ + 1;
    if (!is_sign(end) || !all.is_array()) throw NotUnderstood{};
    Json items = Json::array();
    for (const Json& item : all) {
      scope_.set(tokens_[variable].text, budget_.copy(item));
      at_ = begin;
      items.push_back(expression(depth + 1));
    }
    at_ = behind;
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
      if (takes("**")) {
        const Json others = expression(depth + 1);
        if (!others.is_object() || !all_known(others)) throw NotUnderstood{};
        map.set_all(others, budget_);
      } else {
        const Json key = expression(depth + 1);
        if (!all_known(key)) throw NotUnderstood{};
        expect(":");
        map.set(key_of(key), expression(depth + 1), budget_);
      }
      if (!is_sign("}")) expect(",");
    }
    return map.take();
  }

  Json name(std::string path, int depth) {
    if (path == "True" || path == "False") return path == "True";
    if (path == "None") return nullptr;
    if (path == "lambda" || path == "await") throw NotUnderstood{};
    while (takes(".")) {
      if (at_ >= end_ || tokens_[at_].kind != TokenKind::name) throw NotUnderstood{};
      path += "." + tokens_[at_++].text;
    }
    if (takes("(")) return methods(call(path, depth), depth);
    if (auto value = scope_.value(path)) return std::move(*value);
    return Json{{kNameKey, path}};
  }

  // f(...).g(...)
  Json methods(Json made, int depth) {
    for (int i = 0; takes("."); ++i) {
      if (at_ >= end_ || tokens_[at_].kind != TokenKind::name || i == kDeepestPython) throw NotUnderstood{};
      const std::string method = tokens_[at_++].text;
      if (!takes("(")) {  // an attribute of a call's result
        made = Json{{kNameKey, method}, {kOfKey, std::move(made)}};
        continue;
      }
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
    ArgumentNames names;
    while (!takes(")")) {
      const bool keyword = at_ + 1 < end_ && tokens_[at_].kind == TokenKind::name && tokens_[at_ + 1].is("=");
      const std::string key = keyword ? tokens_[at_].text : "";
      if (keyword) at_ += 2;
      const size_t begin = at_;
      Json value = argument(key, depth);
      const std::string path = path_between(begin, at_);
      if (!path.empty()) names[keyword ? key : std::to_string(arguments.size())] = path;
      if (keyword)
        made.set(key, std::move(value), budget_);
      else
        arguments.push_back(std::move(value));
      takes(",");
    }
    if (!arguments.empty()) made.set(kArgumentsKey, std::move(arguments), budget_);
    Json call = made.take();
    auto result = looks_up ? scope_.call(function, call, names, depth + 1) : std::nullopt;
    return result ? std::move(*result) : call;
  }

  // Empty if any other token than a name is there.
  std::string path_between(size_t begin, size_t end) const {
    std::string path;
    for (size_t i = begin; i < end; ++i) {
      if (tokens_[i].kind != TokenKind::name && !tokens_[i].is(".")) return "";
      path += tokens_[i].text;
    }
    return path;
  }

  // Text that is not understood ends at the next comma. Its value is a name without any value.
  Json argument(const std::string& keyword, int depth) {
    const size_t begin = at_;
    try {
      Json value = expression(depth + 1);
      if (is_sign(",") || is_sign(")")) return value;
    } catch (const NotUnderstood&) {
      if (depth >= kDeepestPython) throw;
    }
    at_ = begin;
    std::string text;
    int open = 0;
    for (; at_ < end_ && (open > 0 || (!is_sign(",") && !is_sign(")"))); ++at_) {
      open += int(tokens_[at_].opens()) - int(tokens_[at_].closes());
      text += tokens_[at_].text;
    }
    if (at_ == begin || at_ >= end_) throw NotUnderstood{};
    unread_.push_back(keyword);
    return Json{{kNameKey, cut_text(text, 60)}};
  }

  const std::vector<PythonToken>& tokens_;
  size_t at_, end_;
  PythonScope& scope_;
  WorkBudget& budget_;
  std::vector<std::string>& unread_;
};

Json numbers_between(int64_t begin, int64_t end) {
  if (end - begin > kMostRepeated) throw NotUnderstood{};
  Json all = Json::array();
  for (int64_t i = begin; i < end; ++i) all.push_back(i);
  return all;
}

}  // namespace

Json python_expression(const std::vector<PythonToken>& tokens, size_t at, size_t end, PythonScope& scope,
                       int depth, WorkBudget& budget, std::vector<std::string>& unread) {
  return ExpressionReader(tokens, at, end, scope, budget, unread).whole(depth);
}

std::optional<bool> python_truth(const Json& value) {
  return value.is_object() && !all_known(value) ? std::nullopt : std::optional(is_true(value));
}

std::optional<Json> python_built_in(const std::string& function, const Json& call) {
  const auto found = call.find(kArgumentsKey);
  if (found == call.end()) return std::nullopt;
  const Json& a = *found;
  if (function == "isinstance" && a.size() == 2 && all_known(a[0]) && a[1].is_object())
    return a[1].value(kNameKey, "") == "str"    ? std::optional<Json>(a[0].is_string())
           : a[1].value(kNameKey, "") == "bool" ? std::optional<Json>(a[0].is_boolean())
                                                : std::nullopt;
  if (function == "cast" && a.size() == 2) return a[1];
  const Json& x = a.front();
  if ((function == "deepcopy" || function == "copy.deepcopy")) return x;
  if (!all_known(a)) return std::nullopt;
  if (function == "len" && (x.is_array() || x.is_string()))
    return x.is_string() ? x.get<std::string>().size() : x.size();
  if ((function == "list" || function == "tuple") && x.is_array()) return x;
  if (function == "float" && x.is_number()) return x.get<double>();
  if (function == "int" && x.is_number_float()) return int64_t(x.get<double>());
  if (function == "int" && x.is_boolean()) return int64_t(x.get<bool>());
  if (!all_of(a, [](const Json& n) { return n.is_number_integer(); })) return std::nullopt;
  if (function == "int") return x;
  if (function == "max") return *std::max_element(a.begin(), a.end());
  if (function == "min") return *std::min_element(a.begin(), a.end());
  if (function == "range" && a.size() < 3)
    return numbers_between(a.size() == 1 ? 0 : whole_number(x), whole_number(a.back()));
  if (function != "divmod" || a.size() != 2) return std::nullopt;
  return Json::array({number_result(x, "//", a[1]), number_result(x, "%", a[1])});
}

Json first_argument(const Json& call) {
  const auto found = call.is_object() ? call.find(kArgumentsKey) : call.end();
  return found != call.end() && found->is_array() && !found->empty() ? found->front() : Json();
}

std::string python_text(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  if (value.is_array()) return "[" + joined(mapped<std::string>(value, python_text), ", ") + "]";
  if (!value.is_object()) return json_text(value);
  std::string items;
  for (const auto& [key, item] : value.items())
    items += fmt::format("{}{}: {}", items.empty() ? "" : ", ", json_text(key), python_text(item));
  return "{" + items + "}";
}

}  // namespace mpt::frameworks
