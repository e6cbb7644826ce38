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

struct Importer {
  Imported (*read)(const std::filesystem::path& file) = nullptr;  // null: none
  const char* what = "";                                          // of files, for people
  const char* ending = "";                                        // of its files; empty: any
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

/// The importer of the framework or alias `from`; where that is empty, the one for the ending of `file`.
/// Throws UserError for a framework without an importer.
const FrameworkCode& find_importer(const std::string& from, const std::string& file);

// The functions of the table, for frameworks/ and tests only.
Exported export_megatron_core(const Plan& plan);
Exported export_megatron_bridge(const Plan& plan);
Exported export_torchtitan(const Plan& plan);
Exported export_deepspeed(const Plan& plan);
Exported export_pytorch(const Plan& plan);
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
/// A torchtitan configuration (TOML). Throws UserError.
Imported import_torchtitan(const std::filesystem::path& file);

std::vector<double> megatron_core_steps(const std::vector<std::string>& lines, const Plan& plan);
std::vector<double> torchtitan_steps(const std::vector<std::string>& lines, const Plan& plan);

/// The numbers behind `key` in every line that has it; commas within numbers are skipped.
std::vector<double> numbers_behind(const std::vector<std::string>& lines, const std::string& key);

}  // namespace mpt::frameworks
