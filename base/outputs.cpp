// SPDX-License-Identifier: Apache-2.0
#include "base/outputs.h"

#include <sys/stat.h>

#include <algorithm>

#include "base/json.h"

namespace mpt {
namespace {

// A link that leads to no file yet: a writer makes that file.
std::filesystem::path behind_empty_links(std::filesystem::path file) {
  constexpr int kMostLinks = 40;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(file, error); ++i)
    file = file.parent_path() / std::filesystem::read_symlink(file, error);
  return file;
}

std::filesystem::path full_path(const std::filesystem::path& file) {
  std::error_code error;
  const auto absolute = std::filesystem::absolute(behind_empty_links(file), error);
  const auto path = std::filesystem::weakly_canonical(absolute, error);
  return error ? absolute.lexically_normal() : path;
}

// What makes two paths one file: device and inode, or the full path of what does not exist yet. Empty for
// what may be shared.
std::string identity_of(const std::filesystem::path& file) {
  struct stat status {};
  if (file.empty()) return "";
  if (::stat(file.c_str(), &status) != 0) return full_path(file).string();
  const bool has_content = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
  return has_content ? fmt::format("{}:{}", status.st_dev, status.st_ino) : "";
}

std::string words_of(const NamedFile& file) { return file.where + " " + file.file.string(); }

UserError overlap_of(const NamedFile& output, const std::string& other) {
  return UserError(Problem{words_of(output), "the same file as " + other, "a file of its own",
                           "name another file; nothing was written"});
}

}  // namespace

FileLedger& files_of_program() {
  static FileLedger ledger;
  return ledger;
}

void FileLedger::set_names(std::vector<NamedFile> words) {
  const std::lock_guard lock(mutex_);
  names_ = std::move(words);
}

std::string FileLedger::name_of(const std::filesystem::path& file) const {
  const std::string own = identity_of(file);
  const auto named = std::find_if(names_.begin(), names_.end(),
                                  [&](const NamedFile& word) { return identity_of(word.file) == own; });
  return (named == names_.end() ? file.string() : words_of(*named)) + ", which is read";
}

void FileLedger::writes(const NamedFile& output) {
  const std::lock_guard lock(mutex_);
  const std::string own = identity_of(output.file);
  if (own.empty()) return;
  for (const std::filesystem::path& input : inputs_) {
    if (identity_of(input) == own) throw overlap_of(output, name_of(input));
  }
  for (const NamedFile& other : outputs_) {
    if (identity_of(other.file) == own) throw overlap_of(output, words_of(other));
  }
  outputs_.push_back(output);
}

void FileLedger::makes(const NamedFile& folder,
                       const std::function<bool(const std::string& name)>& is_own) const {
  const std::lock_guard lock(mutex_);
  for (const NamedFile& output : outputs_) {
    const auto below = full_path(output.file).lexically_relative(full_path(folder.file));
    const std::string name = below.empty() ? ".." : below.begin()->string();
    if (name != "." && !is_own(name)) continue;
    throw UserError(Problem{words_of(output), "a name that the run itself makes for " + words_of(folder),
                            "a file of its own", "name another file; nothing was written"});
  }
}

void FileLedger::reads(const std::filesystem::path& file) {
  const std::lock_guard lock(mutex_);
  const std::string own = identity_of(file);
  if (std::error_code error; own.empty() || !std::filesystem::exists(file, error)) return;
  inputs_.insert(file);
  for (const NamedFile& output : outputs_) {
    if (identity_of(output.file) != own) continue;
    overlap_ = overlap_of(output, name_of(file));
    throw UserError(*overlap_);
  }
}

void FileLedger::check_writable() const {
  const std::lock_guard lock(mutex_);
  for (const NamedFile& output : outputs_) mpt::check_writable(output.file, words_of(output));
}

void FileLedger::check() const {
  const std::lock_guard lock(mutex_);
  if (overlap_) throw UserError(*overlap_);
}

}  // namespace mpt
