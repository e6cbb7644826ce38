// SPDX-License-Identifier: Apache-2.0
#pragma once

// FolderLock: only one run at a time saves to a folder. Two would delete and rename each other's files.

#include <filesystem>

namespace mpt::runtime {

inline constexpr char kLockFile[] = ".running";

/// Makes the folder of --checkpoints. Throws UserError if it cannot be written.
void make_checkpoint_folder(const std::filesystem::path& folder);

/// Locks the file .running in the folder, which names this process and its host. The lock ends when the
/// process and its children end, in any way. If the file cannot be locked, a note on stderr says so.
class FolderLock {
 public:
  /// Makes the folder. Throws UserError if it cannot be written, or if another run holds the lock.
  explicit FolderLock(const std::filesystem::path& folder);
  /// Removes the file, and the folder if it was made here and is empty.
  ~FolderLock();
  FolderLock& operator=(FolderLock&&) = delete;

 private:
  bool take();

  std::filesystem::path folder_, file_;
  bool made_folder_ = false;
  int descriptor_ = -1;  // -1: not locked
};

}  // namespace mpt::runtime
