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
  /// Where a file holds several recipes: their names, and one of them by its name.
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

/// The importer of the framework or alias `from`; where that is empty, the one for the form of `file`.
/// Throws UserError for a framework without an importer.
const FrameworkCode& find_importer(const std::string& from, const std::string& file);

/// The importer of a file that may be no recipe at all; null where it is none. `text`: what stands in it.
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
// Tuners (frameworks/transformers/tuner_exports.cpp): only of plans that they take.
Exported export_trl(const Plan& plan);
Exported export_llamafactory(const Plan& plan);
Exported export_axolotl(const Plan& plan);
// Launchers.
Exported export_slurm(const Plan& plan);
Exported export_kubernetes(const Plan& plan);

/// Flags of a Megatron-LM command line, shell script or functional test: --name value, --name=value, with
/// variables that the script sets. Settings that a plan does not hold are notes; values that cannot be read
/// are errors. Throws UserError.
Imported import_megatron_core(const std::filesystem::path& file);
/// Fields of a Megatron-Bridge configuration, set line by line, or the one recipe of a file. Throws
/// UserError.
Imported import_megatron_bridge(const std::filesystem::path& file);
/// The functions of a Python file that are recipes, and one of them. An empty name stands for the file.
std::vector<std::string> megatron_bridge_recipes(const std::filesystem::path& file);
Imported import_megatron_bridge_recipe(const std::filesystem::path& file, const std::string& name);
/// A torchtitan configuration in Python. Throws UserError.
Imported import_torchtitan(const std::filesystem::path& file);
/// The functions of a Python file that return configurations, and the configuration of one of them.
std::vector<std::string> torchtitan_configurations(const std::filesystem::path& file);
Imported import_torchtitan_configuration(const std::filesystem::path& file, const std::string& function);
/// An exported mpt_train.py. Throws UserError.
Imported import_pytorch(const std::filesystem::path& file);
/// DeepSpeed's JSON, with an exported mpt_deepspeed.py beside it where there is one. Throws UserError.
Imported import_deepspeed(const std::filesystem::path& file);
/// accelerate's YAML, with train.json beside it where there is one, or a recipe of LLaMA-Factory or axolotl.
/// Throws UserError.
Imported import_transformers(const std::filesystem::path& file);
/// A recipe's YAML. Throws UserError.
Imported import_automodel(const std::filesystem::path& file);

}  // namespace mpt::frameworks
