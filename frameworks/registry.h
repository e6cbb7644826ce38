// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C++ of each framework's folder: its export and its import. frameworks/log.h has the readers of logs.

#include <filesystem>
#include <string>
#include <vector>

#include "frameworks/export.h"
#include "frameworks/framework.h"
#include "frameworks/import.h"

namespace mpt::frameworks {

struct Importer {
  Imported (*read)(const std::filesystem::path& file) = nullptr;  // null: none
  /// For files with several recipes: their names, and the import of one by its name.
  std::vector<std::string> (*parts)(const std::filesystem::path& file) = nullptr;
  Imported (*read_part)(const std::filesystem::path& file, const std::string& part) = nullptr;
};

struct FrameworkCode {
  const char* framework;
  Exported (*write)(const Plan& plan) = nullptr;  // null: none
  Importer importer = {};

  const FrameworkFiles& files() const { return find_framework(framework)->files; }
};
/// A row for each of known_frameworks().
const std::vector<FrameworkCode>& framework_code();

/// Throws the UserError for a file of a program that no importer reads.
[[noreturn]] void refuse_program(const std::string& program, const std::string& file);

/// The importer of the framework or alias `from`. If that is empty: the importer for the form of `file`.
/// Throws UserError for a framework without an importer.
const FrameworkCode& find_importer(const std::string& from, const std::string& file);

/// The importer of a file that may not be a recipe; null if it is none. `text`: the file's content.
const FrameworkCode* find_recipe_importer(const std::filesystem::path& file, const std::string& text);

// The functions of the table, for frameworks/ and tests only.
Exported export_megatron_core(const Plan& plan);
Exported export_megatron_bridge(const Plan& plan);
Exported export_torchtitan(const Plan& plan);
Exported export_deepspeed(const Plan& plan);
Exported export_pytorch(const Plan& plan);
Exported export_transformers_fsdp(const Plan& plan);
Exported export_transformers_ddp(const Plan& plan);
Exported export_transformers_deepspeed(const Plan& plan);
Exported export_automodel(const Plan& plan);
// Tuners (frameworks/transformers/tuner_exports.cpp): only for plans that they take.
Exported export_trl(const Plan& plan);
Exported export_llamafactory(const Plan& plan);
Exported export_axolotl(const Plan& plan);
// Launchers.
Exported export_slurm(const Plan& plan);
Exported export_kubernetes(const Plan& plan);

/// Reads flags of a Megatron-LM command line, shell script or functional test: --name value, --name=value,
/// with variables that the script sets. Settings without a place in a plan become notes. Throws UserError for
/// values that cannot be read.
Imported import_megatron_core(const std::filesystem::path& file);
/// Reads fields of a Megatron-Bridge configuration, set line by line, or the one recipe of a file. Throws
/// UserError.
Imported import_megatron_bridge(const std::filesystem::path& file);
/// The recipe functions of a Python file, and the import of one. An empty name means the file itself.
std::vector<std::string> megatron_bridge_recipes(const std::filesystem::path& file);
Imported import_megatron_bridge_recipe(const std::filesystem::path& file, const std::string& name);
/// A torchtitan configuration in Python. Throws UserError.
Imported import_torchtitan(const std::filesystem::path& file);
/// The functions of a Python file that return configurations, and the import of one.
std::vector<std::string> torchtitan_configurations(const std::filesystem::path& file);
Imported import_torchtitan_configuration(const std::filesystem::path& file, const std::string& function);
/// An exported mpt_train.py. Throws UserError.
Imported import_pytorch(const std::filesystem::path& file);
/// DeepSpeed's JSON, with an exported mpt_deepspeed.py if its folder has one. Throws UserError.
Imported import_deepspeed(const std::filesystem::path& file);
/// accelerate's YAML, with train.json if its folder has one, or a recipe of LLaMA-Factory or axolotl. Throws
/// UserError.
Imported import_transformers(const std::filesystem::path& file);
/// A recipe's YAML. Throws UserError.
Imported import_automodel(const std::filesystem::path& file);

}  // namespace mpt::frameworks
