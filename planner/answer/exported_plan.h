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
  std::vector<frameworks::ExportedFile> files;  // with the note as a comment
  std::vector<std::string> warnings;
};

ExportedPlan exported_plan(const frameworks::ExportTarget& target, const Plan& plan);

/// A file of the folder that says what exports wrote there: a line with digest and name for each.
inline constexpr const char* kExportList = ".mpt-export";
/// Writes the files into the folder, and makes it. Throws UserError where a file would be lost that no export
/// wrote; then nothing is written.
void write_exported(const std::vector<ExportedPlan>& all, const std::filesystem::path& folder);

}  // namespace mpt::planner
