// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dialect: the words of a framework for models, as a table for reading and writing. Pairs of functions do
// what rows cannot. A framework has a model if writing it and reading it back gives the same model.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"
#include "models/value_map.h"

namespace mpt::models {

/// Required values, as text_of() writes them; "!x" is any value except x.
using Conditions = std::map<Value, std::string>;

struct ChoiceWord {
#include "generated/ChoiceWord.inc"
};

struct Choice {
#include "generated/Choice.inc"
};

struct DialectRow {
#include "generated/DialectRow.inc"
};

/// The words for a model in a file or a command line.
class WordSource {
 public:
  virtual ~WordSource() = default;
  /// Whether the word is present, and not false.
  virtual bool has(const std::string& word) const = 0;
  /// The word's value; "": a switch. Throws UserError for values that the file does not determine.
  virtual std::optional<std::string> find(const std::string& word) const = 0;
  /// The text of the value in the file, for messages.
  virtual std::string source(const std::string& word) const = 0;
  /// The place of a word in the file; the place of the file if the word is "".
  virtual std::string at(const std::string& word) const = 0;
  /// The word as people write it.
  virtual std::string spelled(const std::string& word) const { return word; }
  /// The remedy for values that are not numbers.
  virtual std::string remedy() const { return ""; }

  std::string text(const std::string& word, const std::string& otherwise) const;
  /// A number within the range. The default is checked too, since it may follow from another word.
  int64_t number(const std::string& word, const FieldRule& rule, int64_t otherwise) const;
  double real(const std::string& word, const FieldRule& rule, double otherwise) const;
  int64_t required(const std::string& word, const FieldRule& rule) const;
  [[noreturn]] void refuse(const std::string& word, const std::string& allowed,
                           const std::string& remedy = "") const;

 private:
  double checked(const std::string& word, const FieldRule& rule, double value) const;
};

struct Word {
  std::string name;
  Json value;          // true or false: a switch; null: None
  bool usual = false;  // the default is the same
  bool bare = false;
};

/// A pair of functions for values that rows cannot express.
struct DialectCode {
  void (*read)(const WordSource& words, Values& values);
  /// Returns whether the words can express them.
  bool (*write)(const Values& values, std::vector<Word>& words);
};

using DialectCodes = std::map<std::string, DialectCode>;

struct Dialect {
#include "generated/Dialect.inc"

  DialectCodes codes;
};

/// The rows of a table that apply to `framework`. Throws UserError for keys and values that do not exist.
Dialect read_dialect(std::string_view text, const std::string& where, const std::string& framework,
                     DialectCodes codes);

struct Written {
  std::vector<Word> words;
  std::vector<Value> lacking;  // values without a word
};
/// `given`: the values of rows about the plan.
Written write(const Dialect& dialect, const Values& values, const std::map<std::string, Json>& given = {});
/// Throws UserError.
Values read(const Dialect& dialect, const WordSource& words);

/// The first value that differs after the model is written and read back;
/// nothing: the dialect has the model.
std::optional<Value> first_difference(const Dialect& dialect, const ModelSpec& model);
/// All values that have no word, or that differ after reading back.
std::set<Value> differences(const Dialect& dialect, const ModelSpec& model);

/// The word in the second spelling; `contrary`: whether it means the opposite.
std::string field_of(const Dialect& dialect, const Word& word, bool& contrary);
/// The word of a field, with "!" before it if the field means the opposite.
std::string word_of(const Dialect& dialect, const std::string& field);

}  // namespace mpt::models
