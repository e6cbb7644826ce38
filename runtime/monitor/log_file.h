// SPDX-License-Identifier: Apache-2.0
#pragma once

// LogFile: a file of lines that is written while a run goes on. A line that cannot be written whole is taken
// back, and the run goes on. failure() tells it at the end.

#include <filesystem>
#include <string>

namespace mpt::runtime {

class LogFile {
 public:
  /// Throws UserError: `where` names the option.
  LogFile(const std::filesystem::path& file, bool append, const std::string& where);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  /// Whoever follows the file sees whole lines. False for the first line that could not be written.
  bool add_line(std::string line);
  /// What could not be written, and why; empty if everything was.
  std::string failure() const;

 private:
  std::filesystem::path file_;
  int descriptor_;
  int64_t lost_lines_ = 0;
  int error_ = 0;
};

}  // namespace mpt::runtime
