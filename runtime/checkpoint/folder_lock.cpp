// SPDX-License-Identifier: Apache-2.0
#include "runtime/checkpoint/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/files.h"

namespace mpt::runtime {
namespace {

constexpr size_t kLongestHolder = 200;

std::string this_process() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '\0';
  return fmt::format("process {} on {}", ::getpid(), host[0] == '\0' ? "this host" : host.data());
}

// The holder writes its name just after it has locked the file, so the name may be missing for a moment.
std::string holder_in(int descriptor) {
  for (int attempt = 0; attempt < 50; ++attempt) {
    std::array<char, kLongestHolder> text{};
    const ssize_t length = ::pread(descriptor, text.data(), text.size() - 1, 0);
    if (length > 0)
      return std::string(text.data(), size_t(length)).substr(0, std::strcspn(text.data(), "\n"));
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return "another process";
}

bool is_plain_file(int descriptor) {
  struct stat status {};
  return ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode) && status.st_nlink <= 1;
}

// The previous holder may have removed the file while this process opened it.
bool is_still_named(int descriptor, const std::filesystem::path& file) {
  struct stat opened {
  }, named{};
  return ::fstat(descriptor, &opened) == 0 && ::stat(file.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

void note_no_lock(const std::filesystem::path& file, const char* reason) {
  warn(fmt::format("mpt-run: note: {} cannot be locked ({}): do not start a second run with this folder",
                   file.string(), reason));
}

}  // namespace

void make_checkpoint_folder(const std::filesystem::path& folder) {
  const std::error_code error = make_folders(folder);
  if (!error && ::access(folder.c_str(), W_OK) == 0) return;
  refuse_input("--checkpoints " + folder.string(),
               fmt::format("cannot be written ({})", error ? error.message() : std::strerror(errno)),
               "a folder, or a name for one");
}

FolderLock::FolderLock(const std::filesystem::path& folder) : folder_(folder), file_(folder / kLockFile) {
  made_folder_ = !is_there(folder_);
  make_checkpoint_folder(folder_);
  while (!take()) {
  }
}

FolderLock::~FolderLock() {
  if (descriptor_ >= 0) {
    ::unlink(file_.c_str());  // still locked: a process that opens it now sees that it is unlinked
    ::close(descriptor_);
  }
  if (made_folder_) ::rmdir(folder_.c_str());  // fails if there is anything in it
}

// False: try again.
bool FolderLock::take() {
  const int descriptor = ::open(file_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                                S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH);
  if (descriptor < 0) return note_no_lock(file_, std::strerror(errno)), true;
  const auto give_up = [&](const char* reason) {
    ::close(descriptor);
    note_no_lock(file_, reason);
    return true;
  };
  if (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return give_up(std::strerror(errno));
    const std::string holder = holder_in(descriptor);
    ::close(descriptor);
    refuse_input("--checkpoints " + folder_.string(), fmt::format("another run saves there ({})", holder),
                 "a folder that no other run saves to", "wait until that run ends, or name another folder");
  }
  if (!is_still_named(descriptor, file_)) return ::close(descriptor), false;
  if (!is_plain_file(descriptor)) return give_up("no plain file");
  descriptor_ = descriptor;
  const std::string name = this_process() + "\n";
  // The lock holds even without its name in the file.
  if (::ftruncate(descriptor_, 0) == 0 && ::pwrite(descriptor_, name.data(), name.size(), 0) < 0) errno = 0;
  return true;
}

}  // namespace mpt::runtime
