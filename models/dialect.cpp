// SPDX-License-Identifier: Apache-2.0
#include "models/dialect.h"

#include <cmath>

#include "base/json.h"
#include "models/family.h"

namespace mpt::models {
namespace {

Json known(const Values& values, Value value) { return copy_of(values, value).value_or(Json()); }

bool fits(const Values& values, Value value, const std::string& wanted) {
  const std::string text = text_of(known(values, value));
  return wanted.starts_with('!') ? text != wanted.substr(1) : text == wanted;
}

bool holds(const Conditions& conditions, const Values& values, std::optional<Value> but = {}) {
  return all_of(conditions, [&](const auto& condition) {
    return condition.first == but || fits(values, condition.first, condition.second);
  });
}

std::string name_of(const DialectRow& row) {
  return row.word.empty() && row.value ? enum_name(*row.value) : row.word;
}

// A value from a table's text: a literal, or the current value of another name.
Json resolved(const DialectRow& row, const std::string& text, const Values& values) {
  if (text.empty()) return Json();
  if (const auto other = enum_value<Value>(text)) return known(values, *other);
  return value_of(*row.value, text).value_or(Json());
}

bool is_switch(const DialectRow& row) {
  if (row.names.empty()) return form_of(*row.value)->type == ValueType::flag;
  return any_of(row.names, [](const auto& n) { return n.second == "true"; });
}

bool can_have(const DialectRow& row, const Json& value) {
  const auto& v = row.values;
  return v.empty() || contains(v, text_of(value));
}

// Whether two texts mean the same. Numbers are equal even if they are written differently.
bool same_text(const std::string& a, const std::string& b) {
  const Json x = Json::parse(a, nullptr, false), y = Json::parse(b, nullptr, false);
  return a == b || (x.is_number() && y.is_number() && x == y);
}

Json word_value(const std::string& text) {
  if (text == "true" || text == "false") return text == "true";
  const Json parsed = Json::parse(text, nullptr, false);
  return parsed.is_number() ? parsed : Json(text);
}

// Writing.

class Writer {
 public:
  Writer(const Dialect& dialect, const Values& values) : dialect_(dialect), values_(values) {}

  Written take() { return std::move(written_); }

  void write(const DialectRow& row, const std::map<std::string, Json>& given) {
    if (row.given) {
      if (const Json* found = find_value(given, row.word)) add(row, *found, *found == Json(false));
    } else if (!holds(row.condition, values_)) {
      return;
    } else if (!row.code.empty()) {
      if (!dialect_.codes.at(row.code).write(values_, written_.words)) lack(*row.value);
    } else if (!row.choices.empty()) {
      write_choice(row);
    } else if (!row.value) {
      add(row, word_value(row.is), false);
    } else if (!row.free) {
      write_value(row);
    }
  }

 private:
  void add(const DialectRow& row, const Json& value, bool usual) {
    written_.words.push_back({name_of(row), value, usual});
  }

  void lack(Value value) { written_.lacking.push_back(value); }

  void write_choice(const DialectRow& row) {
    const auto choice = find_if(row.choices, [&](const Choice& c) {
      return !c.read_only && holds(c.condition, values_) && holds(c.ours, values_);
    });
    if (choice == row.choices.end()) return lack(*row.value);
    for (const ChoiceWord& w : choice->words) {
      if (w.is.starts_with('!') || w.is == "absent") continue;
      const Json value = word_value(w.is);
      written_.words.push_back({w.word, value, value == Json(false), w.bare});
    }
  }

  void write_value(const DialectRow& row) {
    const Json otherwise = resolved(row, row.fixed.empty() ? row.otherwise : row.fixed, values_);
    Json ours = known(values_, *row.value);
    if (ours.is_null() && row.absent) ours = otherwise;
    if (ours.is_null()) return;
    const bool usual = ours == otherwise;
    if (!usual && (!row.fixed.empty() || !can_be(row, ours, otherwise))) return lack(*row.value);
    if (!row.fixed.empty()) return;
    const Json theirs = said(row, ours);
    if (theirs.is_boolean()) return add(row, theirs, theirs == Json(false));
    add(row, usual && row.none ? Json() : theirs, usual && !row.always);
  }

  bool can_be(const DialectRow& row, const Json& ours, const Json& otherwise) const {
    const std::string text = text_of(ours);
    const std::vector<Json> all = ours.is_array() ? ours.get<std::vector<Json>>() : std::vector<Json>{ours};
    const auto allowed = [&](const Json& one) { return can_have(row, one); };
    if (!holds(row.needs, values_) || !all_of(all, allowed)) return false;
    const FieldRule rule = rule_of(*row.value);
    if (ours.is_number() && (ours.get<double>() < rule.minimum || ours.get<double>() > rule.maximum))
      return false;
    if (row.whole && std::floor(ours.get<double>()) != ours.get<double>()) return false;
    if (!row.names.empty()) return row.names.contains(text);
    // A switch that is present has its value; an absent switch has the default.
    return !is_switch(row) || ours == Json(true) || otherwise.is_null();
  }

  Json said(const DialectRow& row, const Json& ours) const {
    if (row.whole) return int64_t(ours.get<double>());
    if (!row.names.empty()) {
      const std::string& name = row.names.at(text_of(ours));
      return is_switch(row) ? word_value(name) : Json(name);
    }
    // A switch with its default is not written.
    if (is_switch(row)) return ours == Json(true) && resolved(row, row.otherwise, values_) != ours;
    return ours;
  }

  const Dialect& dialect_;
  const Values& values_;
  Written written_;
};

// Reading.

class Reader {
 public:
  Reader(const Dialect& dialect, const WordSource& words) : dialect_(dialect), words_(words) {}

  Values take() { return std::move(values_); }

  void read(const DialectRow& row) {
    if (row.given || (!row.value && row.code.empty())) return;
    if (!holds(row.condition, values_, row.value)) {
      if (row.checked) read_number(row);
    } else if (!row.code.empty()) {
      dialect_.codes.at(row.code).read(words_, values_);
    } else if (!row.choices.empty()) {
      read_choice(row);
    } else if (!row.fixed.empty()) {
      set(*row.value, resolved(row, row.fixed, values_));
    } else {
      set(*row.value, value(row));
    }
  }

 private:
  void set(Value value, const Json& json) {
    if (!json.is_null()) values_[value] = json;
  }

  std::string word(const DialectRow& row) const {
    const std::string name = name_of(row);
    const auto other = find_if(row.also, [&](const auto& word) { return words_.has(word); });
    return words_.has(name) || other == row.also.end() ? name : *other;
  }

  // Parts that are absent have no values.
  Json value(const DialectRow& row) const {
    if (is_switch(row)) return read_switch(row);
    if (!row.names.empty() || form_of(*row.value)->type == ValueType::word) return read_name(row);
    if (form_of(*row.value)->type == ValueType::list) return read_list(row);
    const Json number = read_number(row);
    return row.none && number == Json(0) && rule_of(*row.value).minimum > 0 ? Json() : number;
  }

  Json read_switch(const DialectRow& row) const {
    const bool has = words_.has(word(row));
    for (const auto& [ours, theirs] : row.names)
      if (has == (theirs == "true")) return *value_of(*row.value, ours);
    return has ? Json(true) : resolved(row, row.otherwise, values_);
  }

  Json read_name(const DialectRow& row) const {
    const std::string name = word(row);
    if (!words_.has(name)) return resolved(row, row.otherwise, values_);
    const std::string text = words_.text(name, "");
    std::set<std::string> allowed;
    for (const auto& [ours, theirs] : row.names) {
      if (theirs == text) return *value_of(*row.value, ours);
      allowed.insert(theirs);
    }
    if (const auto found = row.reads.find(text); found != row.reads.end())
      return *value_of(*row.value, found->second);
    if (const auto own = value_of(*row.value, text); own && row.names.empty()) return *own;
    if (allowed.empty()) allowed.insert(form_of(*row.value)->known.begin(), form_of(*row.value)->known.end());
    words_.refuse(name, one_of({allowed.begin(), allowed.end()}));
  }

  Json read_list(const DialectRow& row) const {
    const std::string name = word(row);
    if (!words_.has(name)) return Json();
    Json list = Json::parse(words_.text(name, ""), nullptr, false);
    const auto is_known = [&](const Json& entry) { return entry.is_string() && can_have(row, entry); };
    if (!list.is_array() || !all_of(list, is_known))
      words_.refuse(name, fmt::format("a list of {}", joined(row.values, ", ")));
    return list;
  }

  Json read_number(const DialectRow& row) const {
    const std::string name = word(row);
    const ValueType type = form_of(*row.value)->type;
    Json otherwise = resolved(row, row.otherwise, values_);
    FieldRule rule = rule_of(*row.value);
    if (type == ValueType::option) {
      if (!words_.has(name) || words_.text(name, "") == "None") return otherwise;
      return words_.real(name, rule, 0.0);
    }
    if (otherwise.is_null() && type == ValueType::count) return words_.required(name, rule);
    if (row.none) rule.minimum = std::min(rule.minimum, otherwise.get<double>());
    if (type == ValueType::count) return words_.number(name, rule, otherwise.get<int64_t>());
    return words_.real(name, rule, otherwise.is_null() ? 0.0 : otherwise.get<double>());
  }

  bool says(const ChoiceWord& w) const {
    if (w.untested) return true;
    if (w.is == "true" || w.is == "false") return words_.has(w.word) == (w.is == "true");
    const bool given = words_.has(w.word) && words_.text(w.word, "") != "None";
    if (w.is == "absent") return !given;
    if (w.is.starts_with('!')) return given && !same_text(words_.text(w.word, ""), w.is.substr(1));
    return given && same_text(words_.text(w.word, ""), w.is);
  }

  void read_choice(const DialectRow& row) {
    for (const Choice& choice : row.choices) {
      if (!holds(choice.condition, values_) || !all_of(choice.words, [&](const auto& w) { return says(w); }))
        continue;
      for (const auto& [value, text] : choice.ours) set(value, *value_of(value, text));
      return;
    }
    if (row.word.empty() || !words_.has(row.word))
      return set(*row.value, resolved(row, row.otherwise, values_));
    std::set<std::string> allowed;
    for (const Choice& choice : row.choices)
      for (const ChoiceWord& w : choice.words)
        if (w.word == row.word) allowed.insert(w.is);
    words_.refuse(row.word, one_of({allowed.begin(), allowed.end()}));
  }

  const Dialect& dialect_;
  const WordSource& words_;
  Values values_;
};

// The missing value of a mixer other than full attention and windows that no row of the dialect describes.
std::optional<Value> unsaid_mixer(const Dialect& dialect, const Values& values) {
  static const std::map<std::string, Value> parts{{"linear", Value::linear_kind},
                                                  {"both", Value::linear_kind},
                                                  {"chunk", Value::chunk},
                                                  {"sparse", Value::index_chosen},
                                                  {"convolution", Value::convolution},
                                                  {"sparse_shared", Value::index_chosen}};
  for (const Json& mixer : values.at(Value::mixers)) {
    const auto part = copy_of(parts, mixer.get<std::string>());
    if (part && !any_of(dialect.rows, [&](const DialectRow& row) { return row.value == part; })) return part;
  }
  return std::nullopt;
}

// The words that write() made, as a source for read().
class OwnWords : public WordSource {
 public:
  explicit OwnWords(const std::vector<Word>& words) {
    for (const Word& word : words)
      if (!word.usual) words_[word.name] = word.value;
  }
  bool has(const std::string& word) const override {
    const Json* const found = find_value(words_, word);
    return found != nullptr && *found != Json(false) && !found->is_null();
  }
  std::optional<std::string> find(const std::string& word) const override {
    const Json* const found = find_value(words_, word);
    if (found == nullptr) return std::nullopt;
    return *found == Json(true) ? "" : found->is_null() ? "None" : text_of(*found);
  }
  std::string source(const std::string& word) const override { return find(word).value_or(""); }
  std::string at(const std::string& word) const override { return "words of a dialect at " + word; }

 private:
  std::map<std::string, Json> words_;
};

Values read_back(const Dialect& dialect, const Values& values, const Written& written) {
  Values back = read(dialect, OwnWords(written.words));
  for (const DialectRow& row : dialect.rows)
    if (row.free && row.value) back[*row.value] = known(values, *row.value);
  return back;
}

// Checks of a table.

void check_values(const Conditions& conditions, const std::string& at, JsonProblems& problems) {
  for (const auto& [value, text] : conditions) {
    const std::string plain = text.starts_with('!') ? text.substr(1) : text;
    if (plain != "none" && !value_of(value, plain))
      problems.add(at + "/" + enum_name(value), "\"" + text + "\"", "a value that it can have");
  }
}

void check_text(Value value, const std::string& text, const std::string& at, JsonProblems& problems) {
  if (!text.empty() && !enum_value<Value>(text)) check_values({{value, text}}, at, problems);
}

void check_row(const Dialect& d, const DialectRow& row, const std::string& at, JsonProblems& problems) {
  check_values(row.condition, at + "/if", problems);
  check_values(row.needs, at + "/needs", problems);
  for (const Choice& choice : row.choices) {
    check_values(choice.condition, at + "/choices/if", problems);
    check_values(choice.ours, at + "/choices/ours", problems);
  }
  if (!row.code.empty() && !d.codes.contains(row.code))
    problems.add(at + "/code", "\"" + row.code + "\"", "the name of a pair of functions");
  if (!row.value) {
    if (row.word.empty()) problems.add(at, "neither value nor word", "one of them");
    return;
  }
  if (form_of(*row.value) == nullptr)
    return problems.add(at + "/value", "\"" + enum_name(*row.value) + "\"", "a value that models have");
  check_text(*row.value, row.otherwise, at + "/default", problems);
  check_text(*row.value, row.fixed, at + "/fixed", problems);
  for (const auto& [ours, theirs] : row.names) check_text(*row.value, ours, at + "/names", problems);
  for (const auto& [theirs, ours] : row.reads) check_text(*row.value, ours, at + "/reads", problems);
  if (form_of(*row.value)->type == ValueType::list) return;
  for (const std::string& ours : row.values) check_text(*row.value, ours, at + "/values", problems);
}

}  // namespace

std::string WordSource::text(const std::string& word, const std::string& otherwise) const {
  return find(word).value_or(otherwise);
}

void WordSource::refuse(const std::string& word, const std::string& allowed,
                        const std::string& remedy) const {
  refuse_input(at(word), fmt::format("\"{}\"", cut_text(source(word), 80)), allowed, remedy);
}

double WordSource::checked(const std::string& word, const FieldRule& rule, double value) const {
  if (value >= rule.minimum && value <= rule.maximum) return value;
  refuse_input(at(word),
               has(word) ? fmt::format("{}", value) : fmt::format("left out, which means {} here", value),
               fmt::format("a number from {} to {}", rule.minimum, rule.maximum));
}

int64_t WordSource::number(const std::string& word, const FieldRule& rule, int64_t otherwise) const {
  if (!has(word) || text(word, "") == "None") return int64_t(checked(word, rule, double(otherwise)));
  const auto value = number_of<int64_t>(text(word, ""));
  if (!value) refuse(word, "a whole number", remedy());
  return int64_t(checked(word, rule, double(*value)));
}

double WordSource::real(const std::string& word, const FieldRule& rule, double otherwise) const {
  if (!has(word) || text(word, "") == "None") return checked(word, rule, otherwise);
  const auto value = number_of<double>(text(word, ""));
  if (!value) refuse(word, "a number", remedy());
  return checked(word, rule, *value);
}

int64_t WordSource::required(const std::string& word, const FieldRule& rule) const {
  if (!has(word)) refuse_input(at(""), "no " + spelled(word), "a value", "it says what the model is");
  return number(word, rule, 0);
}

Dialect read_dialect(std::string_view text, const std::string& where, const std::string& framework,
                     DialectCodes codes) {
  auto dialect = from_json<Dialect>(parse_json(std::string(text), where), where);
  dialect.codes = std::move(codes);
  JsonProblems problems(where);
  for (size_t r = 0; r < dialect.rows.size(); ++r)
    check_row(dialect, dialect.rows[r], fmt::format("/rows/{}", r), problems);
  for (const std::string& type : dialect.types)
    if (find_family(type) == nullptr)
      problems.add("/types", "\"" + type + "\"" + did_you_mean(type, family_types()),
                   "a type that can be read");
  problems.throw_if_any();
  const auto others = [&](const auto& part) { return !part.only.empty() && part.only != framework; };
  std::erase_if(dialect.rows, others);
  for (DialectRow& row : dialect.rows)
    for (Choice& choice : row.choices) std::erase_if(choice.words, others);
  return dialect;
}

Written write(const Dialect& dialect, const Values& values, const std::map<std::string, Json>& given) {
  Writer writer(dialect, values);
  for (const DialectRow& row : dialect.rows) writer.write(row, given);
  return writer.take();
}

Values read(const Dialect& dialect, const WordSource& words) {
  Reader reader(dialect, words);
  for (const bool first : {true, false})
    for (const DialectRow& row : dialect.rows)
      if (row.first == first) reader.read(row);
  return reader.take();
}

std::optional<Value> first_difference(const Dialect& dialect, const ModelSpec& model) {
  const Values values = values_of(model);
  if (const auto part = unsaid_mixer(dialect, values)) return part;
  const Written written = write(dialect, values);
  if (!written.lacking.empty()) return written.lacking.front();
  return first_difference(model, model_of(read_back(dialect, values, written)));
}

std::set<Value> differences(const Dialect& dialect, const ModelSpec& model) {
  const Values values = values_of(model);
  const Written written = write(dialect, values);
  std::set<Value> found(written.lacking.begin(), written.lacking.end());
  if (const auto part = unsaid_mixer(dialect, values)) found.insert(*part);
  try {
    const Values back = values_of(model_of(read_back(dialect, values, written)));
    for (const auto& [value, ours] : values)
      if (known(back, value) != ours) found.insert(value);
  } catch (const UserError&) {  // these words alone do not make a model
  }
  return found;
}

std::string field_of(const Dialect& dialect, const Word& word, bool& contrary) {
  for (const auto& [field, name] : dialect.fields) {
    contrary = name == "!" + word.name;
    if (contrary || name == word.name) return field;
  }
  return replaced(word.name, '-', '_');
}

std::string word_of(const Dialect& dialect, const std::string& field) {
  return copy_of(dialect.fields, field).value_or(replaced(field, '_', '-'));
}

}  // namespace mpt::models
