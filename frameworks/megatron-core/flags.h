// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron-LM's flags with their values, wherever they were written: a list, a shell script, the YAML of one
// of its tests, or Megatron-Bridge's fields of the same names.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "frameworks/readers/shell_words.h"

namespace mpt::frameworks {

class MegatronFlags {
 public:
  explicit MegatronFlags(std::string file) : file_(std::move(file)) {}

  /// Reads a list of arguments, a script or YAML. Throws UserError where it has no flags of a model.
  static MegatronFlags of_file(const std::filesystem::path& file);

  void set(const std::string& name, const std::vector<ShellWord>& values);
  void set(const std::string& name, const std::string& value) {
    set(name, std::vector<ShellWord>{{value, {}, {}}});
  }

  const std::string& file() const { return file_; }
  std::string at(const std::string& name) const;
  const std::map<std::string, std::vector<ShellWord>>& all() const { return values_; }
  /// Notes of what the script leaves open.
  const std::vector<std::string>& notes() const { return notes_; }

  /// Given, and not as false.
  bool has(const std::string& name) const;
  /// Its first value. Throws UserError if only a shell knows it.
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Its first value, or how it is written where only a shell knows it.
  std::string text_or_source(const std::string& name) const;
  std::vector<std::string> texts(const std::string& name) const;
  /// A whole number within the range. The default is checked too, since it may follow from another flag.
  int64_t number(const std::string& name, const FieldRule& rule, int64_t otherwise) const;
  double real(const std::string& name, const FieldRule& rule, double otherwise) const;
  int64_t required(const std::string& name, const FieldRule& rule) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& allowed,
                           const std::string& remedy = "") const;

 private:
  void take(const ShellCommand& command);
  void take_yaml(const std::string& text, WorkBudget& budget);
  double checked(const std::string& name, const FieldRule& rule, double value) const;

  std::string file_;
  std::map<std::string, std::vector<ShellWord>> values_;
  std::vector<std::string> notes_;
};

}  // namespace mpt::frameworks
