// SPDX-License-Identifier: Apache-2.0
#pragma once

// Config: typed access to the keys of a Hugging Face config.json. Collects every problem, each with its JSON
// pointer, instead of stopping at the first; a key with a problem reads as 1, so that importers can go on.
// Used only by the importer of config.json.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace mpt::models {

/// Results of reading a file: problems, with each place once, the places that were read, and notes for
/// people.
struct ConfigLog {
  JsonProblems& problems;
  std::set<std::string> wrong, read;
  std::vector<std::string> notes;
};

/// The keys of one JSON object of the file; `pointer` is its place.
class Config {
 public:
  Config(const Json& json, std::string pointer, ConfigLog& log)
      : json_(&json), pointer_(std::move(pointer)), log_(&log) {}

  bool has(const char* key) const {
    note(key);
    return json_->contains(key) && !(*json_)[key].is_null();
  }
  bool is_text(const char* key) const { return has(key) && (*json_)[key].is_string(); }
  bool is_number(const char* key) const { return has(key) && (*json_)[key].is_number(); }
  bool is_flag(const char* key) const { return has(key) && (*json_)[key].is_boolean(); }

  /// Classes distinguish the two: an absent key takes the class's default, null switches a feature off.
  bool absent(const char* key) const {
    note(key);
    return !json_->contains(key);
  }
  bool failed() const { return !log_->wrong.empty(); }

  int64_t size(const char* key) { return has(key) ? number(key, 1) : missing(key); }
  int64_t size_or(const char* key, int64_t otherwise) { return has(key) ? number(key, 1) : otherwise; }
  int64_t count_or(const char* key, int64_t otherwise) { return has(key) ? number(key, 0) : otherwise; }

  double real_or(const char* key, double otherwise) {
    if (!has(key)) return otherwise;
    if (scalar(key).is_number()) return scalar(key).get<double>();
    add(key, detail::describe_json((*json_)[key]), "a number");
    return otherwise;
  }

  bool flag_or(const char* key, bool otherwise) {
    if (!has(key)) return otherwise;
    if ((*json_)[key].is_boolean()) return (*json_)[key].get<bool>();
    add(key, detail::describe_json((*json_)[key]), "true or false");
    return otherwise;
  }

  std::string text_or(const char* key, const std::string& otherwise) {
    if (!has(key)) return otherwise;
    if ((*json_)[key].is_string()) return (*json_)[key].get<std::string>();
    add(key, detail::describe_json((*json_)[key]), "a text");
    return otherwise;
  }

  /// The list under `key`, or null.
  const Json* list(const char* key) {
    if (!has(key)) return nullptr;
    if ((*json_)[key].is_array()) return &(*json_)[key];
    add(key, detail::describe_json((*json_)[key]), "a list");
    return nullptr;
  }

  /// The object under `key`; an empty object if there is none.
  Config inner(const char* key) {
    static const Json nothing = Json::object();
    const bool object = has(key) && (*json_)[key].is_object();
    if (has(key) && !object) add(key, detail::describe_json((*json_)[key]), "an object");
    return {object ? (*json_)[key] : nothing, pointer_ + "/" + key, *log_};
  }

  /// Object `index` of the list under `key`; the list must have it.
  Config element(const char* key, size_t index) {
    static const Json nothing = Json::object();
    const Json& value = (*json_)[key][index];
    return {value.is_object() ? value : nothing, fmt::format("{}/{}/{}", pointer_, key, index), *log_};
  }

  void add(const char* key, const std::string& found, const std::string& expected) {
    const std::string at = pointer_ + "/" + key;
    if (log_->wrong.insert(at).second) log_->problems.add(at, found, expected);
  }

  /// Notes a sentence, once.
  void tell(const std::string& note) {
    std::vector<std::string>& notes = log_->notes;
    if (!contains(notes, note)) notes.push_back(note);
  }

  /// Refuses a setting that changes the model in a way that ModelSpec cannot express.
  void refuse(const char* key, const std::string& why) {
    const std::string at = pointer_ + "/" + key;
    if (log_->wrong.insert(at).second) log_->problems.add(at, why, "", "this variant cannot be read");
  }

 private:
  static constexpr int64_t kMaxSize = int64_t{1} << 30;  // a product of two sizes cannot overflow

  void note(const char* key) const { log_->read.insert(pointer_ + "/" + key); }

  // Some files have a list with a number for each layer even if all are equal.
  const Json& scalar(const char* key) const {
    const Json& value = (*json_)[key];
    const auto differs = [&](const Json& entry) { return entry != value.front(); };
    return value.is_array() && !value.empty() && !any_of(value, differs) ? value.front() : value;
  }

  int64_t missing(const char* key) {
    add(key, "missing", "a positive whole number");
    return 1;
  }

  int64_t number(const char* key, int64_t minimum) {
    const Json& value = scalar(key);
    const double size = value.is_number_integer() ? value.get<double>() : -1.0;
    if (size >= double(minimum) && size <= double(kMaxSize)) return value.get<int64_t>();
    add(key, detail::describe_json(value), fmt::format("a whole number from {} to {}", minimum, kMaxSize));
    return 1;
  }

  const Json* json_;
  std::string pointer_;
  ConfigLog* log_;
};

}  // namespace mpt::models
