// SPDX-License-Identifier: Apache-2.0
#include "core/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"

namespace mpt {

MappedFile::MappedFile(const std::filesystem::path& file, const std::string& where) {
  const auto fail = [&](const std::string& found) {
    throw UserError(Problem{where, found, "a readable file", "check the path"});
  };
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail(fmt::format("cannot be read ({})", std::strerror(errno)));
  struct stat status {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(known && S_ISDIR(status.st_mode) ? "is a folder" : "is no regular file");
  }
  size_ = size_t(status.st_size);
  // An empty file cannot be mapped, and needs not be.
  void* const mapped = size_ == 0 ? nullptr : ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (mapped == MAP_FAILED) fail(fmt::format("cannot be mapped ({})", std::strerror(error)));
  data_ = static_cast<const uint8_t*>(mapped);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

}  // namespace mpt
