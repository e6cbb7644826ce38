// SPDX-License-Identifier: Apache-2.0
#pragma once

// Whole files, read and written. An output must not overwrite an input, nor another output. The ledger of a
// program knows both: parse_command_line() enters the outputs that options name, and each reader enters the
// files that it opens.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/error.h"

namespace mpt {

/// A path and where it was named, for messages: an option such as "--log", or "PLAN".
struct NamedFile {
  std::string where;
  std::filesystem::path file;  // empty: no file was named
};

/// Two paths are one file if their device and inode are equal, so links are seen. Paths of files that do not
/// exist yet are one if their folders are. Pipes, terminals and /dev/null lose nothing and may be shared.
class FileLedger {
 public:
  /// The words of the command line that may name inputs. Only messages use them.
  void set_names(std::vector<NamedFile> words);
  /// Throws UserError if the output was read before, or is another output.
  void writes(const NamedFile& output);
  /// Throws UserError if an output is `folder` itself, or is in it under a name for which `is_own` is true.
  /// The program itself creates, moves and removes such names.
  void makes(const NamedFile& folder, const std::function<bool(const std::string& name)>& is_own) const;
  /// Every reader calls it before it opens a file. Throws UserError if the file is an output, or may not be
  /// read.
  void reads(const std::filesystem::path& file);
  /// From now on only files below these folders may be read, and those that were read before. A file of a
  /// stranger may name any other file of the machine. Links are resolved. Hidden files and folders are left
  /// out, because .git may hold a password. Throws UserError for an output with a path through these folders:
  /// a link in them may lead anywhere.
  void keep_below(const std::vector<std::filesystem::path>& folders);
  /// Whether a file may be read. The answer does not depend on whether it exists.
  bool may_read(const std::filesystem::path& file) const;
  /// Throws UserError with every output that cannot be written: called before long work.
  void check_writable() const;
  /// Throws the error of reads() again, in case a reader took it for a fault of its file. Writers call it.
  void check() const;

 private:
  std::string name_of(const std::filesystem::path& file) const;

  mutable std::mutex mutex_;
  std::vector<NamedFile> names_, outputs_;
  std::set<std::filesystem::path> inputs_;
  std::optional<std::vector<std::string>> roots_;  // full paths; nothing: any file may be read
  std::set<std::string> asked_;                    // identities of files that may be anywhere
  std::optional<UserError> overlap_;
};

/// The ledger of this process and its children.
FileLedger& files_of_program();

/// Whether there is anything at a path; where that cannot be asked there is nothing.
bool is_there(const std::filesystem::path& path);
/// Whether there is a regular file, or a folder, at a path that another file names. Where the ledger allows
/// no reading there is nothing.
bool finds_file(const std::filesystem::path& file);
bool finds_folder(const std::filesystem::path& folder);

/// Writes a temporary file in the target's folder, flushes, and renames: a reader never sees half a file. A
/// pipe or /dev/stdout is written in place. A file that is not `durable` may be lost with the machine's
/// power. Throws RunError, or UserError if the path cannot be opened.
void write_file_atomically(const std::filesystem::path& file, const std::string& text, bool durable = true);
/// Puts the names in a folder on the disk: a file's fsync keeps its bytes, and not its name. A file system
/// that cannot do so for folders is no error.
std::error_code sync_folder(const std::filesystem::path& folder);
/// Makes a folder with its parents, and puts their names on the disk.
std::error_code make_folders(const std::filesystem::path& folder);
/// Writes all of `text`. Returns false on failure; errno has the reason.
bool write_all(int descriptor, std::string_view text);
/// Whether a killed write_file_atomically() leaves files of this name.
bool is_temporary_name(std::string_view name);
/// Throws UserError if write_file_atomically() could not open `file`. Call it before long work, not after.
/// `where` names the option or field that holds the path.
void check_writable(const std::filesystem::path& file, const std::string& where);
/// Reads a whole file of at most `max_bytes`. Throws UserError.
std::string read_file(const std::filesystem::path& file, int64_t max_bytes = int64_t{256} << 20);

}  // namespace mpt
