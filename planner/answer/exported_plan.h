// SPDX-License-Identifier: Apache-2.0
#pragma once

// A plan in the words of a framework or launcher, with what to know before the files are used.

#include <filesystem>
#include <string>
#include <vector>

#include "frameworks/export.h"

namespace mpt::planner {

struct ExportedPlan {
  const frameworks::ExportTarget* target = nullptr;
  std::string note;  // what to know of a plan that was priced for another framework; may be empty
  std::vector<frameworks::ExportedFile> files;  // with note and needs as comments
  std::vector<std::string> needs;               // what they take beside the framework
  std::vector<std::string> warnings;  // of a forced export: where it is another training, or cannot run
};

/// For targets by their names. A name that several frameworks of one program share means the plan's. Throws
/// UserError where the files would be another training than the plan or could not run, unless `force`.
std::vector<ExportedPlan> exported_plans(const std::vector<std::string>& names, const Plan& plan, bool force);

/// A file of the folder that says what exports wrote there: a line with digest and name for each.
inline constexpr const char* kExportList = ".mpt-export";
/// Writes the files into the folder, and makes it. Throws UserError where a file would be lost that no export
/// wrote; then nothing is written.
void write_exported(const std::vector<ExportedPlan>& all, const std::filesystem::path& folder);

}  // namespace mpt::planner
