// SPDX-License-Identifier: Apache-2.0
#pragma once

// The C++ of each framework's folder: its export, its import, its log reader.

#include <filesystem>
#include <string>
#include <vector>

#include "frameworks/export.h"
#include "frameworks/import.h"

namespace mpt::frameworks {

struct Exporter {
  Exported (*write)(const Plan& plan) = nullptr;  // null: none
  const char* what = "";                          // one line for people, with the framework's version
};

/// How files of a framework are known: by their ending, and by a text in them where others share it.
struct FileForm {
  const char *ending, *mark = "";
};

struct Importer {
  Imported (*read)(const std::filesystem::path& file) = nullptr;  // null: none
  const char* what = "";                                          // of files, for people
  std::vector<FileForm> forms{};                                  // empty: any
};

struct LogReader {
  /// Seconds of each step; nothing where the lines are not its own.
  std::vector<double> (*read)(const std::vector<std::string>& lines, const Plan& plan) = nullptr;
  const char* mark = "";  // what its lines of steps have
};

struct FrameworkCode {
  const char* framework;
  Exporter exporter;
  Importer importer;
  LogReader log_reader;
};
/// A row for each of known_frameworks().
const std::vector<FrameworkCode>& framework_code();

/// The importer of the framework or alias `from`; where that is empty, the one for the form of `file`.
/// Throws UserError for a framework without an importer.
const FrameworkCode& find_importer(const std::string& from, const std::string& file);

// The functions of the table, for frameworks/ and tests only.
Exported export_megatron_core(const Plan& plan);
Exported export_megatron_bridge(const Plan& plan);
Exported export_torchtitan(const Plan& plan);
Exported export_deepspeed(const Plan& plan);
Exported export_pytorch(const Plan& plan);
Exported export_transformers_fsdp(const Plan& plan);
Exported export_transformers_deepspeed(const Plan& plan);
Exported export_automodel(const Plan& plan);
// Launchers.
Exported export_slurm(const Plan& plan);
Exported export_hostfile(const Plan& plan);
Exported export_kubernetes(const Plan& plan);

/// Flags of a Megatron-LM command line, shell script or functional test: --name value, --name=value, with
/// variables that the script sets. Settings that a plan does not hold are notes; values that cannot be read
/// are errors. Throws UserError.
Imported import_megatron_core(const std::filesystem::path& file);
/// Fields of a Megatron-Bridge configuration, set line by line. Throws UserError.
Imported import_megatron_bridge(const std::filesystem::path& file);
/// A torchtitan configuration in Python, or in TOML as until 0.2. Throws UserError.
Imported import_torchtitan(const std::filesystem::path& file);
/// An exported mpt_train.py. Throws UserError.
Imported import_pytorch(const std::filesystem::path& file);
/// DeepSpeed's JSON, with an exported mpt_deepspeed.py beside it where there is one. Throws UserError.
Imported import_deepspeed(const std::filesystem::path& file);
/// accelerate's YAML, with train.json beside it where there is one. Throw UserError.
Imported import_transformers_fsdp(const std::filesystem::path& file);
Imported import_transformers_deepspeed(const std::filesystem::path& file);
/// A recipe's YAML. Throws UserError.
Imported import_automodel(const std::filesystem::path& file);

std::vector<double> megatron_core_steps(const std::vector<std::string>& lines, const Plan& plan);
std::vector<double> torchtitan_steps(const std::vector<std::string>& lines, const Plan& plan);

/// The numbers behind `key` in every line that has it; commas within numbers are skipped.
std::vector<double> numbers_behind(const std::vector<std::string>& lines, const std::string& key);

}  // namespace mpt::frameworks
