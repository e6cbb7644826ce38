// SPDX-License-Identifier: Apache-2.0
#pragma once

// Values of files in any language, built in linear time and within a bound on the work. Include this only
// from .cpp files, as base/json.h.

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"

namespace mpt {

using Json = nlohmann::ordered_json;

inline constexpr int64_t kMostJsonBytes = int64_t{256} << 20;

/// Bounds the work on one file, as its names and aliases may repeat large parts. A step is a byte that is
/// read or copied. A value costs kValueSteps plus the number of its letters.
class WorkBudget {
 public:
  static constexpr uint64_t kValueSteps = 16;
  static constexpr uint64_t kStepsPerByte = 16;

  /// `file` is the name in errors. The file may have `most_bytes`, and the bound is kStepsPerByte for each.
  WorkBudget(std::string file, int64_t most_bytes);

  const std::string& file() const { return file_; }
  uint64_t spent() const { return spent_; }
  /// Throws UserError beyond the bound.
  void spend(uint64_t steps) {
    spent_ += steps;
    if (spent_ > most_) refuse();
  }
  /// Spends the steps of a copy, and returns the value for it. Throws UserError.
  const Json& copy(const Json& value);

 private:
  [[noreturn]] void refuse() const;

  std::string file_;
  uint64_t most_, spent_ = 0;
};

/// Members of an object in the order in which they came. The library's own object looks at all keys when one
/// is added, which is quadratic.
class ObjectBuilder {
 public:
  /// The member of that name; null if there is none. The pointer is invalid after another member is added.
  Json* find(const std::string& key);
  /// Replaces a value of the same name in its place.
  void set(std::string key, Json value, WorkBudget& budget);
  /// Sets all members of an object.
  void set_all(const Json& object, WorkBudget& budget);
  Json take();

 private:
  std::vector<std::string> keys_;
  std::vector<Json> values_;
  std::map<std::string, size_t> places_;  // used for many keys; few keys are searched one by one
};

/// Builds a document from its parts in their order. Throws UserError for nesting deeper than `most_depth`.
/// The library's parser of JSON calls it as nlohmann::json_sax: its own builder needs quadratic time.
class DocumentBuilder {
 public:
  enum class Doubled { refused, last };  // a key that occurs twice

  DocumentBuilder(WorkBudget& budget, size_t most_depth, Doubled doubled)
      : budget_(budget), most_depth_(most_depth), doubled_(doubled) {}

  bool add(Json value);
  bool start_array(size_t = 0) { return open(false); }
  bool start_object(size_t = 0) { return open(true); }
  /// Whether the innermost object lacks a key for its next value.
  bool wants_key() const { return !open_.empty() && open_.back().is_object && !open_.back().has_key; }
  bool key(std::string name);
  /// Ends the innermost list or object, and returns it at its final place.
  const Json& close();
  Json take() { return std::move(root_); }

  bool null() { return add(nullptr); }
  bool boolean(bool value) { return add(value); }
  bool number_integer(int64_t value) { return add(value); }
  bool number_unsigned(uint64_t value) { return add(value); }
  bool number_float(double value, const std::string&) { return add(value); }
  bool string(std::string& value) { return add(std::move(value)); }
  bool binary(Json::binary_t& value) { return add(std::move(value)); }
  bool end_array() { return close(), true; }
  bool end_object() { return close(), true; }
  template <class Error>
  bool parse_error(size_t, const std::string&, const Error& error) {
    throw error;
  }

 private:
  struct Level {
    bool is_object = false, has_key = false;
    std::string key;
    ObjectBuilder members;
    Json::array_t items;
  };
  bool open(bool is_object);
  const Json& put(Json value);

  WorkBudget& budget_;
  size_t most_depth_;
  Doubled doubled_;
  std::vector<Level> open_;
  Json root_;
};

/// The members of an object, replaced or extended by those of `others`.
Json with_members(const Json& object, const Json& others, const std::string& file);

}  // namespace mpt
