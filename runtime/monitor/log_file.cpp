// SPDX-License-Identifier: Apache-2.0
#include "runtime/monitor/log_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mpt::runtime {
namespace {

// The error, or 0.
int write_line(int descriptor, const std::string& line) {
  for (size_t written = 0; written < line.size();) {
    const ssize_t n = ::write(descriptor, line.data() + written, line.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    written += size_t(n);
  }
  return 0;
}

}  // namespace

LogFile::LogFile(const std::filesystem::path& file, bool append, const std::string& where)
    : file_(file),
      descriptor_(
          ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC), 0666)) {
  if (descriptor_ >= 0) return;
  throw UserError(Problem{where, fmt::format("cannot be written ({})", std::strerror(errno)),
                          "a path in a folder that exists", ""});
}

LogFile::~LogFile() { ::close(descriptor_); }

bool LogFile::add_line(std::string line) {
  line += '\n';
  const off_t before = ::lseek(descriptor_, 0, SEEK_END);  // -1 where lines cannot be taken back: a pipe
  const int error = write_line(descriptor_, line);
  if (error == 0) return true;
  // A device has no length: there is nothing to take back.
  if (before >= 0 && ::ftruncate(descriptor_, before) != 0 && errno != EINVAL) error_ = errno;
  if (error_ == 0) error_ = error;
  return ++lost_lines_ > 1;
}

std::string LogFile::failure() const {
  if (lost_lines_ == 0) return "";
  return fmt::format("{} lacks {} line{}, which could not be written ({})", file_.string(), lost_lines_,
                     lost_lines_ == 1 ? "" : "s", std::strerror(error_));
}

}  // namespace mpt::runtime
