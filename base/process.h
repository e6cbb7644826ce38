// SPDX-License-Identifier: Apache-2.0
#pragma once

// Other programs, started without a shell.

#include <filesystem>
#include <string>
#include <vector>

namespace mpt {

struct ProcessResult {
  int code = 0;        // 127 where it could not be started, 128 + n where signal n ended it
  std::string output;  // of stdout; stderr is the caller's own
};

/// Runs a program found in PATH with these arguments, each handed over as it is, and waits for its end.
/// `input`: the file that it reads as stdin; empty: nothing to read. `quiet`: its stderr is dropped.
/// Throws RunError where no process can be started at all.
ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& input = {},
                          bool quiet = false);

}  // namespace mpt
