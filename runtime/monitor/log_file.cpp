// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/files.h"

namespace mpt::runtime {

LogFile::LogFile(const std::filesystem::path& file, bool append, const std::string& where)
    : file_(file),
      descriptor_(
          ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666)) {
  if (descriptor_ >= 0) return;
  refuse_input(where, fmt::format("cannot be written ({})", std::strerror(errno)),
               "a path in a folder that exists");
}

LogFile::~LogFile() { ::close(descriptor_); }

bool LogFile::add(const std::string& record) {
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);  // -1 for pipes, which cannot be truncated
  if (write_all(descriptor_, record)) return true;
  const int error = errno;
  // A device has no length, so there is nothing to truncate.
  if (before >= 0 && ::ftruncate(descriptor_, before) != 0 && errno != EINVAL) error_ = errno;
  if (error_ == 0) error_ = error;
  return ++lost_ > 1;
}

std::string LogFile::failure() const {
  if (lost_ == 0) return "";
  return fmt::format("{} lacks {} record{}, which could not be written ({})", file_.string(), lost_,
                     lost_ == 1 ? "" : "s", std::strerror(error_));
}

}  // namespace mpt::runtime
