// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogFile: a file of records, written while a run continues. A record that cannot be written completely is
// removed, and the run continues. failure() reports it at the end.

#include <filesystem>
#include <string>

namespace mpt::runtime {

class LogFile {
 public:
  /// Throws UserError: `where` names the option.
  LogFile(const std::filesystem::path& file, bool append, const std::string& where);
  ~LogFile();
  LogFile& operator=(LogFile&&) = delete;

  /// A reader of the growing file sees complete records. Returns false for the first one that could not be
  /// written.
  bool add(const std::string& record);
  /// The records that could not be written, and why; empty if all were.
  std::string failure() const;

 private:
  std::filesystem::path file_;
  int descriptor_;
  int64_t lost_ = 0;
  int error_ = 0;
};

}  // namespace mpt::runtime
