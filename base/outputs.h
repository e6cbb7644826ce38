// SPDX-License-Identifier: Apache-2.0
#pragma once

// An output must not overwrite an input, nor another output. Every program asks check_distinct_files() before
// it starts its work.

#include <filesystem>
#include <string>
#include <vector>

namespace mpt {

/// A path and where it was named, for messages: an option such as "--log", or "plan".
struct NamedFile {
  std::string where;
  std::filesystem::path file;  // empty: none was named
};

/// Throws UserError with every output that is the same file as an input or as another output. Existing files
/// are the same if their device and inode are, so links are seen; others if their normalised paths are.
/// Pipes, terminals and /dev/null lose nothing and may be shared. The files of a folder must be named one by
/// one.
void check_distinct_files(const std::vector<NamedFile>& inputs, const std::vector<NamedFile>& outputs);

}  // namespace mpt
