// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron-LM's flags with their values, wherever they were written: a list, a shell script, the YAML of one
// of its tests, or Megatron-Bridge's fields of the same names.

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "frameworks/readers/shell_words.h"
#include "models/dialect.h"

namespace mpt::frameworks {

class MegatronFlags : public models::WordSource {
 public:
  explicit MegatronFlags(std::string file) : file_(std::move(file)) {}

  /// Reads a list of arguments, a script or YAML. Throws UserError where it has no flags of a model.
  static MegatronFlags of_file(const std::filesystem::path& file);

  void set(const std::string& name, const std::vector<ShellWord>& values);
  void set(const std::string& name, const std::string& value) {
    set(name, std::vector<ShellWord>{{value, {}, {}}});
  }

  const std::string& file() const { return file_; }
  const std::map<std::string, std::vector<ShellWord>>& all() const { return values_; }
  /// Notes of what the script leaves open.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Whether one of Megatron-LM's own programs takes the flags, as far as the file says.
  bool own_program() const;
  /// Whether they are all that a program gets; a list of flags may be a part of them.
  bool is_whole() const { return !program_.empty(); }
  /// Processes that the script starts; 0: it does not say.
  int64_t ranks() const { return ranks_; }
  /// That the script asks Slurm for; 0: it does not say.
  int64_t nodes() const { return nodes_; }
  /// What the script sets beside its flags, as "env." and a name; of values that it tells.
  const std::map<std::string, std::optional<Json>>& environment() const { return environment_; }

  std::vector<std::string> texts(const std::string& name) const;

  bool has(const std::string& name) const override;
  /// Its first value. Throws UserError if only a shell knows it.
  std::optional<std::string> find(const std::string& name) const override;
  std::string source(const std::string& name) const override;
  std::string at(const std::string& name) const override;
  std::string spelled(const std::string& name) const override { return "--" + name; }
  std::string remedy() const override { return "put in the values of shell variables"; }

 private:
  void take(const ShellCommand& command);
  void take_environment(const std::string& name, const ShellCommand& words);
  void take_yaml(const std::string& text, WorkBudget& budget);

  std::string file_, program_;
  bool of_test_ = false;  // whose program is not in the file
  int64_t ranks_ = 0, nodes_ = 0;
  std::map<std::string, std::vector<ShellWord>> values_;
  std::vector<std::string> notes_;
  std::map<std::string, std::optional<Json>> environment_;
};

}  // namespace mpt::frameworks
