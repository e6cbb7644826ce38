// SPDX-License-Identifier: Apache-2.0
#include "frameworks/rules.h"

#include <sstream>

namespace mpt::frameworks {
namespace {

using Known = std::optional<Json>;

constexpr double kMostExact = 9007199254740992.0;  // 2^53

bool is_number(const Json& value) { return value.is_number() || value.is_boolean(); }
double real_of(const Json& value) {
  return value.is_boolean() ? double(value.get<bool>()) : value.get<double>();
}

bool is_equal(const Json& a, const Json& b) {
  return is_number(a) && is_number(b) ? real_of(a) == real_of(b) : a == b;
}

bool holds(const Json& list, const Json& item) {
  if (list.is_string() && item.is_string())
    return list.get_ref<const std::string&>().find(item.get_ref<const std::string&>()) != std::string::npos;
  return list.is_array() && any_of(list, [&](const Json& one) { return is_equal(one, item); });
}

// The items of a list that `other` also has (`both`), or that it lacks.
Json picked(const Json& list, const Json& other, bool both) {
  Json result = Json::array();
  for (const Json& item : list)
    if (holds(other, item) == both) result.push_back(item);
  return result;
}

// A value, if known, and the text of its condition.
struct Operand {
  Known value;
  std::string text;
};

// Unknown values give an unknown result, unless the other side decides.
Known either(const Known& a, const Known& b, bool any) {
  if (a) return is_true(*a) == any ? a : b;
  return b && is_true(*b) == any ? Known(any) : std::nullopt;
}

Known item_of(const Known& list, const Known& index) {
  if (!list || !index || !list->is_array() || !is_number(*index)) return std::nullopt;
  const double at = real_of(*index);
  return at >= 0.0 && at < double(list->size()) ? Known((*list)[size_t(at)]) : std::nullopt;
}

Known called(const std::string& function, const Json& value) {
  if (function == "not") return !is_true(value);
  if (function == "bool") return is_true(value);
  if (function == "len" && value.is_array()) return value.size();
  if (function == "lower" && value.is_string()) return lower_case(value.get<std::string>());
  if (function == "int" && is_number(value)) return std::trunc(real_of(value));
  if (function == "is_list") return value.is_array();
  if (function == "is_str") return value.is_string();
  if (function == "is_int") return value.is_number();
  return std::nullopt;
}

class Condition {
 public:
  explicit Condition(const SettingValues& values) : values_(values) {}

  Operand of(const std::string& text) {
    std::istringstream words(text);
    for (std::string word; words >> word;) take(word);
    return pop();
  }

 private:
  Operand pop() {
    if (stack_.empty()) throw InternalError("frameworks/*/asked.json: a condition without operands");
    Operand top = std::move(stack_.back());
    stack_.pop_back();
    return top;
  }

  void take(const std::string& word) {
    static const std::set<std::string> kSigns{"+",  "-",  "*", "/",  "//", "%",  "&",
                                              "==", "!=", "<", "<=", ">",  ">=", "in"};
    static const std::set<std::string> kCalls{"not",   "bool",    "len",    "int",
                                              "lower", "is_list", "is_str", "is_int"};
    if (word == "and" || word == "or" || word == "[]" || kSigns.contains(word)) {
      const Operand right = pop(), left = pop();
      const Known value = word == "[]"                    ? item_of(left.value, right.value)
                          : word == "and" || word == "or" ? either(left.value, right.value, word == "or")
                          : left.value && right.value     ? computed(*left.value, word, *right.value)
                                                          : std::nullopt;
      stack_.push_back({value, fmt::format("({} {} {})", left.text, word, right.text)});
    } else if (kCalls.contains(word)) {
      const Operand one = pop();
      stack_.push_back(
          {one.value ? called(word, *one.value) : std::nullopt, fmt::format("{} {}", word, one.text)});
    } else if (word == "if") {
      const Operand otherwise = pop(), then = pop(), condition = pop();
      const Known value = !condition.value            ? std::nullopt
                          : is_true(*condition.value) ? then.value
                                                      : otherwise.value;
      stack_.push_back({value, fmt::format("({} if {} else {})", then.text, condition.text, otherwise.text)});
    } else if (const auto items = number_of<size_t>(word.starts_with("list") ? word.substr(4) : "")) {
      take_list(*items);
    } else {
      stack_.push_back({named(word), word});
    }
  }

  void take_list(size_t count) {
    Operand list{Json::array(), "]"};
    for (size_t i = 0; i < count; ++i) {
      const Operand item = pop();
      if (list.value && item.value) list.value->insert(list.value->begin(), *item.value);
      if (!item.value) list.value = std::nullopt;
      list.text = item.text + (i > 0 ? ", " : "") + list.text;
    }
    list.text = "[" + list.text;
    stack_.push_back(std::move(list));
  }

  Known named(const std::string& word) const {
    if (word == "True" || word == "False") return word == "True";
    if (word == "None") return nullptr;
    if (word.front() == '\'' || word.front() == '"') return word.substr(1, word.size() - 2);
    if (const auto number = number_of<double>(word)) return *number;
    return copy_of(values_, word);
  }

  const SettingValues& values_;
  std::vector<Operand> stack_;
};

class RuleRun {
 public:
  explicit RuleRun(SettingValues values) : values_(std::move(values)) {}

  /// `certain`: the framework reaches these rules in any case. `guard`: the condition of the last "if".
  std::optional<BrokenRule> run(const Json& rules, bool certain, const std::string& guard) {
    for (const Json& rule : rules)
      if (auto broken = one(rule, certain, guard)) return broken;
    return std::nullopt;
  }

 private:
  std::optional<BrokenRule> one(const Json& rule, bool certain, const std::string& guard) {
    const auto kind = rule[1].get<std::string>();
    const std::string place = rule[0].is_string() ? rule[0].get<std::string>() : rule[0].dump();
    if (kind == "refuse") return certain ? std::optional(BrokenRule{place, guard}) : std::nullopt;
    const auto text = rule[2].get<std::string>();
    if (kind == "set") {
      const Known value = certain ? Condition(values_).of(rule[3].get<std::string>()).value : std::nullopt;
      values_.erase(text);
      if (value) values_[text] = *value;
      return std::nullopt;
    }
    const Operand condition = Condition(values_).of(text);
    const Known& value = condition.value;
    if (kind == "assert")
      return certain && value && !is_true(*value) ? std::optional(BrokenRule{place, condition.text})
                                                  : std::nullopt;
    const Json otherwise = rule.size() > 4 ? rule[4] : Json::array();
    const std::string no = "not ", &when = condition.text;
    if (value && is_true(*value))
      return run(rule[3], certain, when.starts_with(no) ? when.substr(4) : no + when);
    if (value) return run(otherwise, certain, condition.text);
    run(rule[3], false, "");
    run(otherwise, false, "");
    return std::nullopt;
  }

  SettingValues values_;
};

}  // namespace

bool is_true(const Json& value) {
  if (value.is_number()) return value.get<double>() != 0.0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return value.is_boolean() ? value.get<bool>() : !value.empty();
}

std::optional<Json> computed(const Json& a, const std::string& sign, const Json& b) {
  if (sign == "==") return is_equal(a, b);
  if (sign == "!=") return !is_equal(a, b);
  if (sign == "in") return holds(b, a);
  if (a.is_array() && b.is_array() && sign == "+") {
    Json all = a;
    all.insert(all.end(), b.begin(), b.end());
    return all;
  }
  if (a.is_array() && b.is_array()) return picked(a, b, sign == "&");
  if (!is_number(a) || !is_number(b)) return std::nullopt;
  const double x = real_of(a), y = real_of(b);
  if (sign.front() == '<') return sign == "<" ? x < y : x <= y;
  if (sign.front() == '>') return sign == ">" ? x > y : x >= y;
  if (y == 0.0 && (sign.front() == '/' || sign == "%")) return std::nullopt;
  const double value = sign == "+"    ? x + y
                       : sign == "-"  ? x - y
                       : sign == "*"  ? x * y
                       : sign == "/"  ? x / y
                       : sign == "//" ? std::floor(x / y)
                                      : x - y * std::floor(x / y);
  return std::abs(value) < kMostExact ? Known(value) : std::nullopt;
}

std::optional<Json> condition_value(const std::string& text, const SettingValues& values) {
  return Condition(values).of(text).value;
}

std::optional<BrokenRule> broken_rule(const std::vector<RuleFile>& files, SettingValues values) {
  RuleRun run(std::move(values));
  for (const RuleFile& file : files)
    if (auto broken = run.run(file.rules, true, "")) {
      const bool elsewhere = broken->place.find(':') != std::string::npos;
      broken->place =
          (elsewhere ? file.file.substr(0, file.file.find(',') + 2) : file.file + ":") + broken->place;
      return broken;
    }
  return std::nullopt;
}

}  // namespace mpt::frameworks
