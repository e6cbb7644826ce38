// SPDX-License-Identifier: Apache-2.0
#pragma once

// A plan in the words of a framework or launcher, with notes to read before the files are used.

#include <filesystem>
#include <string>
#include <vector>

#include "frameworks/export_targets.h"

namespace mpt::planner {

struct ExportedPlan {
  const frameworks::ExportTarget* target = nullptr;
  std::string note;  // notes on a plan that was priced for another framework; may be empty
  std::vector<frameworks::ExportedFile> files;  // with note and needs as comments
  std::vector<std::string> needs;               // needed in addition to the framework
  std::vector<std::string> warnings;  // of a forced export: it is another training, or it cannot run
};

/// Plans for targets by their names. A name that several frameworks of one program share means the plan's.
/// Throws UserError if the files would be another training than the plan or could not run, unless `force`.
std::vector<ExportedPlan> exported_plans(const std::vector<std::string>& names, const Plan& plan, bool force);

/// A file of the folder that lists the files of exports: a line with digest and name for each.
inline constexpr const char* kExportList = ".mpt-export";
/// Writes the files into the folder, and creates it. Throws UserError if a file that no export wrote would be
/// lost; then nothing is written.
void write_exported(const std::vector<ExportedPlan>& all, const std::filesystem::path& folder);

}  // namespace mpt::planner
