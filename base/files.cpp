// SPDX-License-Identifier: Apache-2.0
#include "base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#include "base/quantity.h"

namespace mpt {
namespace {

// Follows links that lead to no file yet. A writer creates the file at their end.
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

// A text that is equal for two paths of one file: device and inode, or the full path of a file that does not
// exist yet. Empty for a file that may be shared.
std::string identity_of(const std::filesystem::path& file) {
  struct stat status {};
  if (file.empty()) return "";
  if (::stat(file.c_str(), &status) != 0) return full_path(file).string();
  const bool has_content = S_ISREG(status.st_mode) || S_ISDIR(status.st_mode);
  return has_content ? fmt::format("{}:{}", status.st_dev, status.st_ino) : "";
}

// Whether a resolved path is in a folder, and not hidden there.
bool is_below(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const auto within = path.lexically_relative(folder);
  if (within.empty() || !folder.has_relative_path()) return false;  // the root of all files bounds nothing
  return within == "." ||
         all_of(within, [](const std::filesystem::path& part) { return !part.string().starts_with('.'); });
}

std::string words_of(const NamedFile& file) { return file.where + " " + file.file.string(); }

UserError overlap_of(const NamedFile& output, const std::string& other) {
  return UserError(words_of(output), "the same file as " + other, "a file of its own",
                   "name another file; nothing was written");
}

// Pipes and devices, also through a link, and open files that have lost their name (/dev/stdout may be one).
// Renaming would replace them by a regular file.
bool is_written_in_place(const std::filesystem::path& file) {
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (!std::filesystem::exists(status) || std::filesystem::is_directory(status)) return false;
  if (!std::filesystem::is_regular_file(status)) return true;
  return !std::filesystem::exists(std::filesystem::canonical(file, error), error) || error;
}

// The target of a link. Writers replace the target and keep the link.
std::filesystem::path behind_links(const std::filesystem::path& file) {
  std::error_code error;
  const auto target = std::filesystem::canonical(file, error);
  return error ? file : target;
}

[[noreturn]] void refuse_to_write(const std::string& where) {
  refuse_input(where, fmt::format("cannot be written ({})", std::strerror(errno)),
               "a path in a folder that exists and can be written");
}

int open_in_place(const std::string& file) {
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) refuse_to_write(file);
  return descriptor;
}

constexpr std::string_view kTemporary = ".mpt-", kTemporaryEnd = ".tmp";

// A new file in the target's folder. Its name cannot be guessed, and O_EXCL follows no link, so other users
// of the folder cannot put a file in its place. The length of its name does not depend on the target's name.
struct Temporary {
  std::string file;
  int descriptor = -1;
};
Temporary open_beside(const std::filesystem::path& target, const std::string& where) {
  constexpr int kTries = 16;
  uint64_t random = 0;  // std::random_device asks for a newer glibc than the Python wheel does
  for (int i = 0; i < kTries && ::getentropy(&random, sizeof random) == 0; ++i) {
    const auto name = target.parent_path() / fmt::format("{}{:016x}{}", kTemporary, random, kTemporaryEnd);
    const int descriptor = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (descriptor >= 0) return {name.string(), descriptor};
    if (errno != EEXIST) break;
  }
  refuse_to_write(where);
}

// Gives the new file the permissions of the file that it replaces.
void keep_permissions(const std::filesystem::path& target, int descriptor) {
  constexpr mode_t kPermissions = 0777;
  struct stat status {};
  if (::stat(target.c_str(), &status) == 0) (void)!::fchmod(descriptor, status.st_mode & kPermissions);
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
  const auto named = find_if(names_, [&](const NamedFile& word) { return identity_of(word.file) == own; });
  return (named == names_.end() ? file.string() : words_of(*named)) + ", which is read";
}

void FileLedger::writes(const NamedFile& output) {
  const std::lock_guard lock(mutex_);
  const std::string own = identity_of(output.file);
  if (own.empty()) return;
  for (const auto& input : inputs_)
    if (identity_of(input) == own) throw overlap_of(output, name_of(input));
  for (const NamedFile& other : outputs_)
    if (identity_of(other.file) == own) throw overlap_of(output, words_of(other));
  outputs_.push_back(output);
}

void FileLedger::makes(const NamedFile& folder,
                       const std::function<bool(const std::string& name)>& is_own) const {
  const std::lock_guard lock(mutex_);
  for (const NamedFile& output : outputs_) {
    const auto below = full_path(output.file).lexically_relative(full_path(folder.file));
    const std::string name = below.empty() ? ".." : below.begin()->string();
    if (name != "." && !is_own(name)) continue;
    refuse_input(words_of(output), "a name that the run itself makes for " + words_of(folder),
                 "a file of its own", "name another file; nothing was written");
  }
}

bool FileLedger::may_read(const std::filesystem::path& file) const {
  const std::lock_guard lock(mutex_);
  const auto real = full_path(file);
  return !roots_ || any_of(*roots_, [&](const auto& root) { return is_below(real, root); }) ||
         asked_.contains(identity_of(file));
}

void FileLedger::keep_below(const std::vector<std::filesystem::path>& folders) {
  const std::lock_guard lock(mutex_);
  roots_.emplace();
  for (const std::filesystem::path& folder : folders) roots_->push_back(full_path(folder).string());
  for (const std::filesystem::path& input : inputs_) asked_.insert(identity_of(input));
  for (const NamedFile& output : outputs_) {
    std::error_code error;
    // Parts ".." at the beginning leave the current folder, which is no link. Later parts may be links.
    std::filesystem::path begin = std::filesystem::current_path(error);
    auto part = output.file.begin();
    for (; part != output.file.end() && *part == ".."; ++part) begin = begin.parent_path();
    for (; part != output.file.end(); ++part) begin /= *part;
    for (auto part = begin; part.has_relative_path(); part = part.parent_path()) {
      if (!any_of(*roots_, [&](const auto& root) { return is_below(full_path(part), root); })) continue;
      refuse_input(words_of(output), "in the folder that is read, whose links may lead anywhere",
                   fmt::format("a file outside of {}", joined(*roots_, ", ")),
                   "name a file in another folder; nothing was written");
    }
  }
}

void FileLedger::reads(const std::filesystem::path& file) {
  const bool allowed = may_read(file);
  const std::lock_guard lock(mutex_);
  if (!allowed)
    refuse_input(file.string(), "outside of the recipes, not read",
                 fmt::format("a file below {}, not hidden", joined(*roots_, ", ")),
                 "copy it there, or name a folder that holds both as the root");
  const std::string own = identity_of(file);
  if (own.empty() || !is_there(file)) return;
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

bool is_there(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

bool finds_file(const std::filesystem::path& file) {
  std::error_code error;
  return files_of_program().may_read(file) && std::filesystem::is_regular_file(file, error);
}

bool finds_folder(const std::filesystem::path& folder) {
  std::error_code error;
  return files_of_program().may_read(folder) && std::filesystem::is_directory(folder, error);
}

std::string read_file(const std::filesystem::path& file, int64_t max_bytes) {
  files_of_program().reads(file);
  std::error_code error;
  const auto status = std::filesystem::status(file, error);
  if (std::filesystem::is_directory(status)) refuse_input(file.string(), "is a folder", "a file");
  // Opening a pipe would wait for a writer, and a device may have no end. A pipe without a name, such as a
  // shell's <(command), already has its writer.
  const bool is_nameless =
      std::filesystem::is_fifo(status) && std::filesystem::canonical(file, error).empty();
  if (std::filesystem::is_other(status) && !is_nameless)
    refuse_input(file.string(), "is no regular file", "a readable file", "check the path");
  std::ifstream in(file, std::ios::binary);
  if (!in)
    refuse_input(file.string(), fmt::format("cannot be read ({})", std::strerror(errno)), "a readable file",
                 "check the path");
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk) || in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (static_cast<int64_t>(text.size()) > max_bytes)
      refuse_input(file.string(), fmt::format("larger than {}", format_bytes(double(max_bytes))),
                   "a smaller file");
  }
  return text;
}

std::error_code sync_folder(const std::filesystem::path& folder) {
  const auto named = folder.empty() ? std::filesystem::path(".") : folder;
  const int descriptor = ::open(named.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return {errno, std::generic_category()};
  const bool synced = ::fsync(descriptor) == 0 || errno == EINVAL || errno == ENOTSUP;
  const std::error_code error(synced ? 0 : errno, std::generic_category());
  ::close(descriptor);
  return error;
}

std::error_code make_folders(const std::filesystem::path& folder) {
  std::error_code error, ignored;
  std::filesystem::create_directories(folder, error);
  for (auto at = std::filesystem::absolute(folder, ignored); !error && at.has_relative_path();
       at = at.parent_path())
    (void)sync_folder(at.parent_path());  // those above may be closed to this user
  return error;
}

void write_file_atomically(const std::filesystem::path& file, const std::string& text, bool durable) {
  files_of_program().check();
  const bool in_place = is_written_in_place(file);
  const auto target = in_place ? file : behind_links(file);
  const Temporary out =
      in_place ? Temporary{file.string(), open_in_place(file.string())} : open_beside(target, file.string());
  if (!in_place) keep_permissions(target, out.descriptor);
  bool ok = write_all(out.descriptor, text) && (in_place || !durable || ::fsync(out.descriptor) == 0);
  ok = (::close(out.descriptor) == 0) && ok;
  ok = ok && (in_place || ::rename(out.file.c_str(), target.c_str()) == 0);
  if (ok && durable && !in_place)
    (void)sync_folder(target.parent_path());  // a folder that may not be listed has no sync
  if (ok) return;
  const RunError error(
      fmt::format("{}: cannot be written completely ({})", file.string(), std::strerror(errno)));
  if (!in_place) ::unlink(out.file.c_str());
  throw error;
}

bool write_all(int descriptor, std::string_view text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(descriptor, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<size_t>(n);
  }
  return true;
}

bool is_temporary_name(std::string_view name) {
  return name.starts_with(kTemporary) && name.ends_with(kTemporaryEnd);
}

void check_writable(const std::filesystem::path& file, const std::string& where) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored))
    refuse_input(where, "cannot be written (it is a folder)", "a file");
  if (is_written_in_place(file)) {
    if (::access(file.c_str(), W_OK) == 0) return;
    refuse_input(where, fmt::format("cannot be written ({})", std::strerror(errno)), "");
  }
  const auto target = behind_links(file);
  if (target.filename().string().size() > size_t(NAME_MAX)) {
    errno = ENAMETOOLONG;
    refuse_to_write(where);
  }
  const Temporary out = open_beside(target, where);
  ::close(out.descriptor);
  ::unlink(out.file.c_str());
}

}  // namespace mpt
