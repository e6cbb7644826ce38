// SPDX-License-Identifier: Apache-2.0
#pragma once

// Strict JSON reading and writing over the field lists of base/fields.h. Reading collects every problem of a
// file (unknown key, missing key, wrong type, out of range), each with file and JSON pointer, and throws them
// together. Include this only from .cpp files: nlohmann/json is slow to compile.

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "base/fields.h"
#include "base/files.h"
#include "base/values.h"

namespace mpt {

/// Parses a file of at most `max_bytes` and 64 levels. Throws UserError with file, line and column.
Json load_json(const std::filesystem::path& file, int64_t max_bytes = kMostJsonBytes);
/// Parses text in linear time; `where` names it in errors. Unlike the library, refuses nesting of more than
/// 64 levels and duplicate keys.
Json parse_json(const std::string& text, const std::string& where);
/// The same within a bound on the work. Errors use the file name in `budget`.
Json parse_json(const std::string& text, WorkBudget& budget);
/// The same for any text: nothing if parse_json() refuses it.
std::optional<Json> json_of(const std::string& text);
/// The text under a key of an object; empty if there is none.
std::string text_at(const Json& json, const char* key);
/// The document as text; bytes that are no UTF-8 become U+FFFD. `indent` -1: on one line.
std::string json_text(const Json& json, int indent = -1);

/// Collects problems while a document is read.
class JsonProblems {
 public:
  explicit JsonProblems(std::string file) : file_(std::move(file)) {}

  void add(const std::string& pointer, std::string found, std::string expected, std::string remedy = "");
  /// Whether further problems are dropped: a hostile file could hold millions.
  bool full() const { return problems_.size() >= kMostProblems; }
  /// Throws UserError if anything was added.
  void throw_if_any() const;

 private:
  static constexpr size_t kMostProblems = 20;

  std::string file_;
  std::vector<Problem> problems_;
};

namespace detail {

/// "the number 3", "the text \"x\"", "a list": for messages.
std::string describe_json(const Json& value);
std::string escape_pointer(const std::string& key);

template <class T>
void read_value(const Json& json, const std::string& pointer, const FieldRule& rule, JsonProblems& problems,
                T& out);

bool check_range(double value, const std::string& pointer, const FieldRule& rule, JsonProblems& problems);
bool check_text(const std::string& text, const std::string& pointer, const FieldRule& rule,
                JsonProblems& problems);

/// Visitor that fills one described struct from a JSON object.
template <class T>
class ObjectReader {
 public:
  ObjectReader(const Json& json, std::string pointer, JsonProblems& problems, T& out)
      : json_(json), pointer_(std::move(pointer)), problems_(problems), out_(out) {}

  template <class Member>
  void field(const char* name, Member member, const char* /*doc*/, FieldRule rule = {}) {
    known_.emplace_back(name);
    const auto found = json_.find(name);
    if (found == json_.end()) {
      if (rule.required && !is_a<FieldType<T, Member>, std::optional>) missing_.emplace_back(name);
      return;
    }
    read_value(*found, pointer_ + "/" + escape_pointer(name), rule, problems_, std::invoke(member, out_));
  }

  // A misspelt key is one problem, not two: an unknown key near a missing one is reported in its place.
  void finish() {
    for (const auto& [key, value] : json_.items()) {
      if (problems_.full()) return;
      if (contains(known_, key)) continue;
      const std::string meant = nearest_name(key, missing_.empty() ? known_ : missing_);
      std::erase(missing_, meant);
      problems_.add(pointer_ + "/" + escape_pointer(key), "unknown key \"" + key.substr(0, 80) + "\"", "",
                    meant.empty() ? "remove it" : "did you mean \"" + meant + "\"?");
    }
    for (const std::string& name : missing_)
      problems_.add(pointer_.empty() ? "/" : pointer_, "missing key \"" + name + "\"", "it to be present");
  }

 private:
  const Json& json_;
  std::string pointer_;
  JsonProblems& problems_;
  T& out_;
  std::vector<std::string> known_;
  std::vector<std::string> missing_;
};

template <class T>
class ObjectWriter {
 public:
  explicit ObjectWriter(const T& value) : value_(value) {}
  template <class Member>
  void field(const char* name, Member member, const char* /*doc*/, FieldRule = {});
  Json take() { return std::move(json_); }

 private:
  const T& value_;
  Json json_ = Json::object();
};

template <class T>
void read_number(const Json& json, const std::string& pointer, const FieldRule& rule, JsonProblems& problems,
                 T& out) {
  if (!json.is_number()) return problems.add(pointer, describe_json(json), "a number");
  const double value = json.get<double>();
  if constexpr (std::is_integral_v<T>) {
    // A double holds integers up to 2^53 exactly; nothing we store is larger.
    if (value != std::floor(value) || std::fabs(value) > 9007199254740992.0 ||
        value > static_cast<double>(std::numeric_limits<T>::max()))
      return problems.add(pointer, describe_json(json), "a whole number that fits the field");
  }
  if (check_range(value, pointer, rule, problems)) out = static_cast<T>(value);
}

template <class T>
void read_enum(const Json& json, const std::string& pointer, JsonProblems& problems, T& out) {
  const std::string name = json.is_string() ? json.get<std::string>() : "";
  if (const auto value = enum_value<T>(name)) {
    out = *value;
    return;
  }
  const std::vector<std::string> known = enum_names<T>();
  const std::string meant = json.is_string() ? nearest_name(name, known) : "";
  problems.add(pointer, describe_json(json), one_of(known),
               meant.empty() ? "" : "did you mean \"" + meant + "\"?");
}

/// A key of a map: any text, or the name of an enum value.
template <class K>
bool read_key(const std::string& key, const std::string& pointer, JsonProblems& problems, K& out) {
  if constexpr (std::is_enum_v<K>) {
    const auto value = enum_value<K>(key);
    const std::string meant = value ? "" : nearest_name(key, enum_names<K>());
    if (!value)
      problems.add(pointer, "unknown key \"" + key.substr(0, 80) + "\"", "",
                   meant.empty() ? "remove it" : "did you mean \"" + meant + "\"?");
    if (value) out = *value;
    return value.has_value();
  } else {
    out = key;
    return check_text(key, pointer, FieldRule{}, problems);
  }
}

template <class T>
void read_value(const Json& json, const std::string& pointer, const FieldRule& rule, JsonProblems& problems,
                T& out) {
  if constexpr (std::is_same_v<T, Json>) {
    out = json;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!json.is_boolean()) return problems.add(pointer, describe_json(json), "true or false");
    out = json.get<bool>();
  } else if constexpr (std::is_arithmetic_v<T>) {
    read_number(json, pointer, rule, problems, out);
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!json.is_string()) return problems.add(pointer, describe_json(json), "a text");
    if (check_text(json.get_ref<const std::string&>(), pointer, rule, problems))
      out = json.get<std::string>();
  } else if constexpr (std::is_enum_v<T>) {
    read_enum(json, pointer, problems, out);
  } else if constexpr (is_a<T, std::optional>) {
    if (json.is_null())
      out.reset();
    else
      read_value(json, pointer, rule, problems, out.emplace());
  } else if constexpr (is_a<T, NameOr>) {
    if (json.is_string()) return read_value(json, pointer, rule, problems, out.name);
    if (!json.is_object()) return problems.add(pointer, describe_json(json), "a name or an object");
    read_value(json, pointer, rule, problems, out.value.emplace());
  } else if constexpr (is_a<T, std::vector>) {
    if (!json.is_array()) return problems.add(pointer, describe_json(json), "a list");
    out.clear();
    for (size_t i = 0; i < json.size(); ++i)
      read_value(json[i], pointer + "/" + std::to_string(i), rule, problems, out.emplace_back());
  } else if constexpr (is_a<T, std::map>) {
    if (!json.is_object()) return problems.add(pointer, describe_json(json), "an object");
    out.clear();
    for (const auto& [key, value] : json.items()) {
      const std::string at = pointer + "/" + escape_pointer(key);
      typename T::key_type name{};
      if (read_key(key, at, problems, name)) read_value(value, at, rule, problems, out[name]);
    }
  } else {
    if (!json.is_object()) return problems.add(pointer, describe_json(json), "an object");
    ObjectReader<T> reader(json, pointer, problems, out);
    T::describe(reader);
    reader.finish();
  }
}

template <class K>
const std::string& key_text(const K& key) {
  if constexpr (std::is_enum_v<K>)
    return enum_name(key);
  else
    return key;
}

template <class T>
Json write_value(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return enum_name(value);
  } else if constexpr (std::is_same_v<T, std::string> || std::is_arithmetic_v<T>) {
    return value;
  } else if constexpr (is_a<T, std::optional>) {
    return value ? write_value(*value) : Json(nullptr);
  } else if constexpr (is_a<T, NameOr>) {
    return value.value ? write_value(*value.value) : Json(value.name);
  } else if constexpr (is_a<T, std::vector>) {
    Json list = Json::array();
    for (const auto& element : value) list.push_back(write_value(element));
    return list;
  } else if constexpr (is_a<T, std::map>) {
    Json::object_t object;  // operator[] would compare all keys
    for (const auto& [key, element] : value) object.emplace_back(key_text(key), write_value(element));
    return object;
  } else {
    ObjectWriter<T> writer(value);
    T::describe(writer);
    return writer.take();
  }
}

// An absent optional is left out, so that files hold only the values that were given.
template <class T>
template <class Member>
void ObjectWriter<T>::field(const char* name, Member member, const char*, FieldRule rule) {
  const auto& value = std::invoke(member, value_);
  if (rule.omits_default) {
    const T usual{};
    if (value == std::invoke(member, usual)) return;
  }
  if constexpr (is_a<FieldType<T, Member>, std::optional>)
    if (!value.has_value()) return;
  json_[name] = write_value(value);
}

}  // namespace detail

/// Reads a described struct; throws UserError with every problem found. `file` names the source in messages,
/// `pointer` is the place of `json` in it.
template <class T>
T from_json(const Json& json, const std::string& file, const std::string& pointer = "") {
  T out{};
  JsonProblems problems(file);
  detail::read_value(json, pointer, FieldRule{}, problems, out);
  problems.throw_if_any();
  return out;
}

template <class T>
Json to_json(const T& value) {
  return detail::write_value(value);
}

}  // namespace mpt
