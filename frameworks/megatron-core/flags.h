// SPDX-License-Identifier: Apache-2.0
#pragma once

// Megatron-LM's flags and their values from any source: a list, a shell script, the YAML of one of its tests,
// or Megatron-Bridge's fields of the same names.

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

  /// Reads a list of arguments, a script or YAML. Throws UserError if it has no flags of a model.
  static MegatronFlags of_file(const std::filesystem::path& file);

  void set(const std::string& name, const std::vector<ShellWord>& values);
  void drop(const std::string& name) { values_.erase(name); }
  void set(const std::string& name, const std::string& value) {
    set(name, std::vector<ShellWord>{{value, {}, {}}});
  }

  const std::string& file() const { return file_; }
  const std::map<std::string, std::vector<ShellWord>>& all() const { return values_; }
  /// Notes about values that the script leaves open.
  const std::vector<std::string>& notes() const { return notes_; }
  /// Whether one of Megatron-LM's own programs takes the flags, if the file names a program.
  bool own_program() const;
  /// Whether a program gets exactly these flags. A list without a program may be only a part.
  bool is_whole() const { return !program_.empty(); }
  /// Processes that the script starts; 0: not stated.
  int64_t ranks() const { return ranks_; }
  /// Nodes that the script requests from Slurm; 0: not stated.
  int64_t nodes() const { return nodes_; }
  /// Environment variables that the script sets, as "env." and a name, with their values if known.
  const std::map<std::string, std::optional<Json>>& environment() const { return environment_; }

  std::vector<std::string> texts(const std::string& name) const;

  bool has(const std::string& name) const override;
  /// The first value of a flag. Throws UserError if only a shell can compute it.
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
  bool of_test_ = false;  // the file does not name its program
  int64_t ranks_ = 0, nodes_ = 0;
  std::map<std::string, std::vector<ShellWord>> values_;
  std::vector<std::string> notes_;
  std::map<std::string, std::optional<Json>> environment_;
};

}  // namespace mpt::frameworks
