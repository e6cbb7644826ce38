// SPDX-License-Identifier: Apache-2.0
#pragma once

// Dialect: the words of a framework for models, as a table that is used both ways. Pairs of functions say
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

/// What values must be, as text_of() has them; "!x" is anything but x.
using Conditions = std::map<Value, std::string>;

struct ChoiceWord {
  std::string word;
  std::string is = "true";  // "false": not given; "absent": not given, or as None; "!x": given, and not as x
  std::string only;
  bool untested = false;
  bool bare = false;

  static void describe(auto& v) {
    using T = ChoiceWord;
    v.field("word", &T::word, "the word");
    v.field("is", &T::is, "its value; true: it is a switch", rare_field());
    v.field("only", &T::only, "the only framework that has it", rare_field());
    v.field("untested", &T::untested, "it is written, and says nothing when read", rare_field());
    v.field("bare", &T::bare, "its value is an expression, not a text", rare_field());
  }
};

struct Choice {
  Conditions condition, ours;
  std::vector<ChoiceWord> words;
  bool read_only = false;

  static void describe(auto& v) {
    using T = Choice;
    v.field("if", &T::condition, "what must hold in both directions", rare_field());
    v.field("ours", &T::ours, "values that these words mean", rare_field());
    v.field("words", &T::words, "the words", rare_field());
    v.field("read_only", &T::read_only, "it is never written", rare_field());
  }
};

struct DialectRow {
  std::optional<Value> value;
  std::string word;               // "": the value's own name
  std::vector<std::string> also;  // read where `word` is not given
  std::string only;
  std::string otherwise;                            // what silence means: a value, or the name of another one
  std::string fixed;                                // no word says it: it is always this
  std::string is;                                   // of a word without a value
  std::map<std::string, std::string> names, reads;  // ours by theirs, theirs that are only read
  std::vector<std::string> values;                  // that it can have
  Conditions condition;                             // a condition on the row's own value is for writing
  Conditions needs;                                 // what values other than the default need
  std::vector<Choice> choices;
  std::string code;
  bool always = false;  // it is written where it has its default, too
  bool absent = false;  // its default is written where the model has no such value
  bool none = false;    // its default is written as None
  bool whole = false;
  bool first = false;    // it is read before the others
  bool free = false;     // no model is refused for it
  bool given = false;    // it says something of the plan, which the caller knows
  bool checked = false;  // its range is checked where the condition does not hold, too

  static void describe(auto& v) {
    using T = DialectRow;
    v.field("value", &T::value, "what it says", rare_field());
    v.field("word", &T::word, "the word; absent: the value's own name", rare_field());
    v.field("also", &T::also, "other words for it, which are only read", rare_field());
    v.field("only", &T::only, "the only framework that has the row", rare_field());
    v.field("default", &T::otherwise, "what silence means: a value, or the name of another one",
            rare_field());
    v.field("fixed", &T::fixed, "no word says it: it is always this", rare_field());
    v.field("is", &T::is, "what a word without a value always is", rare_field());
    v.field("names", &T::names, "their names of values", rare_field());
    v.field("reads", &T::reads, "values of further names of theirs, which are only read", rare_field());
    v.field("values", &T::values, "all values that it can have", rare_field());
    v.field("if", &T::condition, "what must hold", rare_field());
    v.field("needs", &T::needs, "what must hold for values other than the default", rare_field());
    v.field("choices", &T::choices, "alternatives: the first that fits holds", rare_field());
    v.field("code", &T::code, "functions that read and write it", rare_field());
    v.field("always", &T::always, "it is written where it has its default, too", rare_field());
    v.field("absent", &T::absent, "its default is written where the model lacks the part", rare_field());
    v.field("none", &T::none, "its default is written as None", rare_field());
    v.field("whole", &T::whole, "it is a whole number", rare_field());
    v.field("first", &T::first, "it is read before the others", rare_field());
    v.field("free", &T::free, "no model is refused for it", rare_field());
    v.field("given", &T::given, "it says something of the plan", rare_field());
    v.field("checked", &T::checked, "its range is checked even where it means nothing", rare_field());
  }
};

/// Words that somebody wrote.
class WordSource {
 public:
  virtual ~WordSource() = default;
  /// Given, and not as false.
  virtual bool has(const std::string& word) const = 0;
  /// Its value; "": a switch. Throws UserError for values that the file does not tell.
  virtual std::optional<std::string> find(const std::string& word) const = 0;
  /// How the value is written, for messages.
  virtual std::string source(const std::string& word) const = 0;
  /// The place of a word in the file; of the file where the word is "".
  virtual std::string at(const std::string& word) const = 0;
  /// How people write the word.
  virtual std::string spelled(const std::string& word) const { return word; }
  /// For values that are no numbers.
  virtual std::string remedy() const { return ""; }

  std::string text(const std::string& word, const std::string& otherwise) const;
  /// Within the range. The default is checked too, since it may follow from another word.
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
  bool usual = false;  // silence means the same
  bool bare = false;
};

/// A pair of functions for values that rows cannot say.
struct DialectCode {
  void (*read)(const WordSource& words, Values& values);
  /// Returns whether the words can say it.
  bool (*write)(const Values& values, std::vector<Word>& words);
};

using DialectCodes = std::map<std::string, DialectCode>;

struct Dialect {
  std::string framework;  // name of the owner
  std::string source;
  std::vector<DialectRow> rows;
  // Frameworks that take a config.json have types instead of rows. trained_by: values that only some types
  // train.
  std::vector<std::string> types;
  std::map<Value, std::vector<std::string>> trained_by;
  std::vector<std::string> models;            // of the zoo, which it has by name whatever the rows say
  std::map<std::string, std::string> fields;  // words by second spelling; "!x": the contrary of the switch x
  std::vector<std::string> refused;           // words of models that no ModelSpec describes
  std::map<Value, std::string> lacks;         // values that no part of it has, and where it says so
  std::vector<std::string> not_taken_over;    // words that a plan has no place for
  std::map<std::string, std::string> former;  // words that the framework refuses by now, and present ones
  std::map<std::string, int64_t> vocabularies;  // of tokenizers, by how their names begin, in small letters
  DialectCodes codes;

  static void describe(auto& v) {
    using T = Dialect;
    v.field("framework", &T::framework, "name of the owner", rare_field());
    v.field("source", &T::source, "where this is from", rare_field(long_text()));
    v.field("types", &T::types, "types of config.json that it has", rare_field());
    v.field("trained_by", &T::trained_by, "types that train a value, which others leave out", rare_field());
    v.field("models", &T::models, "models of the zoo that it has by name", rare_field());
    v.field("fields", &T::fields, "words by the second spelling; !x: the contrary of x", rare_field());
    v.field("refused", &T::refused, "words of models that no plan describes", rare_field());
    v.field("lacks", &T::lacks, "values that no part of it has, and where it says so", rare_field());
    v.field("not_taken_over", &T::not_taken_over, "words that a plan has no place for", rare_field());
    v.field("former", &T::former, "words that the framework refuses by now, and present ones", rare_field());
    v.field("vocabularies", &T::vocabularies, "sizes by how a tokenizer's name begins", rare_field());
    v.field("rows", &T::rows, "what words say, in the order in which they are written", rare_field());
  }
};

/// The rows of a table that `framework` has. Throws UserError for keys and values that do not exist.
Dialect read_dialect(std::string_view text, const std::string& where, const std::string& framework,
                     DialectCodes codes);

struct Written {
  std::vector<Word> words;
  std::vector<Value> lacking;  // values that no word says
};
/// `given`: the values of rows about the plan.
Written write(const Dialect& dialect, const Values& values, const std::map<std::string, Json>& given = {});
/// Throws UserError.
Values read(const Dialect& dialect, const WordSource& words);

/// The first value that comes back different when the model is written and read; nothing: the dialect has the
/// model.
std::optional<Value> first_difference(const Dialect& dialect, const ModelSpec& model);
/// All that no word says or that come back different.
std::set<Value> differences(const Dialect& dialect, const ModelSpec& model);

/// The word in the second spelling; `contrary`: whether it means the contrary.
std::string field_of(const Dialect& dialect, const Word& word, bool& contrary);
/// The word of a field, with "!" before it where the field says the contrary.
std::string word_of(const Dialect& dialect, const std::string& field);

}  // namespace mpt::models
