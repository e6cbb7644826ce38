// SPDX-License-Identifier: Apache-2.0
#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/files.h"

namespace mpt {
namespace {

// The file of each address range. A signal handler reads the list without a lock, so entries are never freed,
// only used again.
struct Mapping {
  std::atomic<const uint8_t*> begin{nullptr};
  size_t bytes = 0;
  char name[512] = "";
  Mapping* next = nullptr;
};
std::atomic<Mapping*> mappings{nullptr};
std::mutex mappings_mutex;
struct sigaction earlier_sigbus;

const Mapping* mapping_at(const void* address) {
  const auto at = reinterpret_cast<uintptr_t>(address);
  for (const Mapping* m = mappings; m != nullptr; m = m->next) {
    const auto begin = reinterpret_cast<uintptr_t>(m->begin.load());
    if (begin != 0 && at >= begin && at - begin < m->bytes) return m;
  }
  return nullptr;
}

// The system has no page for an address of a mapped file: the file has become shorter, or its disk failed.
// The run cannot go on with wrong data.
void end_of_file_is_gone(int, siginfo_t* info, void*) {
  const Mapping* mapping = mapping_at(info->si_addr);
  if (mapping == nullptr) {
    sigaction(SIGBUS, &earlier_sigbus, nullptr);  // the access is repeated, and ends as without this handler
    return;
  }
  const char* const parts[] = {program_invocation_short_name, ": run failed: ", mapping->name,
                               ": cannot be read any more: the file became shorter, or its disk failed\n"};
  for (const char* part : parts)
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  ::_exit(kExitRunFailed);
}

void watch(const uint8_t* begin, size_t bytes, const std::string& name) {
  const std::lock_guard lock(mappings_mutex);
  if (mappings == nullptr) {
    struct sigaction action {};
    action.sa_sigaction = end_of_file_is_gone;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, &earlier_sigbus);
  }
  Mapping* unused = mappings;
  while (unused != nullptr && unused->begin != nullptr) unused = unused->next;
  Mapping* const mapping = unused != nullptr ? unused : new Mapping;
  mapping->bytes = bytes;
  mapping->name[name.copy(mapping->name, sizeof mapping->name - 1)] = '\0';
  mapping->begin = begin;
  if (unused != nullptr) return;
  mapping->next = mappings;
  mappings = mapping;
}

void unwatch(const uint8_t* begin) {
  const std::lock_guard lock(mappings_mutex);
  for (Mapping* m = mappings; m != nullptr; m = m->next)
    if (m->begin == begin) m->begin = nullptr;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& file, const std::string& where) {
  const auto fail = [&](const std::string& found) {
    refuse_input(where, found, "a readable file", "check the path");
  };
  files_of_program().reads(file);
  // Opening a pipe would wait for a writer.
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail(fmt::format("cannot be read ({})", std::strerror(errno)));
  struct stat status {};
  if (const bool known = ::fstat(descriptor, &status) == 0; !known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(known && S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file");
  }
  size_ = size_t(status.st_size);
  // An empty file cannot be mapped, and need not be.
  void* const mapped = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (mapped == MAP_FAILED) fail(fmt::format("cannot be mapped ({})", std::strerror(error)));
  data_ = static_cast<const uint8_t*>(mapped);
  if (data_ != nullptr) watch(data_, size_, where);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  unwatch(data_);
  ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace mpt
