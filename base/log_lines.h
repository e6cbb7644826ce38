// SPDX-License-Identifier: Apache-2.0
#pragma once

// Lines of a program's output as launchers and terminals leave them, with the launcher's prefix apart.
// Readers of training logs and of nccl-tests use it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mpt {

/// A line without its launcher's prefix. `text` points into the text that log_lines() was given.
struct LogLine {
  std::string_view text;
  std::string speaker;  // host and process as the prefix has them: "node1 3"; empty without one
  int64_t rank = -1;    // the process's number in that prefix; -1 without one
  size_t number = 0;    // in the file, from 1; a progress bar's redrawn lines share one
};

/// `text` without the control sequences that colour a terminal.
std::string without_colours(std::string_view text);

/// Lines end in "\n", or in "\r" as those of progress bars. Known prefixes, also several in a row:
///   srun "0: "; mpirun "[1,0]<stdout>:" and "[0]"; torchrun "[rank0]:" and "[default0]:"; pdsh "node1: ";
///   Ray "(Actor pid=7, ip=10.0.0.1)"; NeMo-Run "train/0 "; "stdout: "; times of day.
std::vector<LogLine> log_lines(std::string_view text);

}  // namespace mpt
