// SPDX-License-Identifier: Apache-2.0

// For LD_PRELOAD: counts the calls that change files below a folder, writes them down, and spoils one of
// them.
//   MPT_FAULTS_BELOW  the folder
//   MPT_CALLS         a file that gets a line for each call that was made: kind, path, and more
//   MPT_FAULT         kill (the process ends before it), fail (EIO), full (it and all later ones: ENOSPC),
//   short
//                     (half of a write is written), drop (nothing is done, and success is said), wait (it is
//                     made when the file MPT_FAULT_UNTIL is there; MPT_FAULT_UNTIL.begun says that it waits)
//   MPT_FAULT_AT      the number of the call, from 1; for wait a text in the paths of files that are created
// A line holds the bytes of a write in hexadecimal, so that tests/runtime/crash_points_test.py can make what
// a machine without power would have kept.

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace {

template <class Function>
Function* next_of(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool is_below(const std::string& path) {
  static const std::string folder = variable("MPT_FAULTS_BELOW");
  return !folder.empty() && path.rfind(folder, 0) == 0;
}

std::string path_of(int descriptor) {
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(descriptor);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  return length > 0 ? std::string(path, size_t(length)) : "";
}

std::recursive_mutex calls_mutex;
int calls = 0;

enum class Fate { made, failed, halved, dropped };

// Paths that are created, such as MPT_FAULT_AT names one, wait; only the first.
void wait_to_create(const std::string& path) {
  static bool has_waited = false;
  if (variable("MPT_FAULT") != "wait" || has_waited || path.find(variable("MPT_FAULT_AT")) == path.npos)
    return;
  has_waited = true;
  const std::string until = variable("MPT_FAULT_UNTIL");
  const auto open = next_of<int(const char*, int, ...)>("open");
  ::close(open((until + ".begun").c_str(), O_WRONLY | O_CREAT, 0644));
  while (::access(until.c_str(), F_OK) != 0) ::usleep(10'000);
}

// Counts a call; may end the process, or set errno.
Fate fate_of_next() {
  static const std::string fault = variable("MPT_FAULT");
  static const int at = std::atoi(variable("MPT_FAULT_AT").c_str());
  ++calls;
  if (fault == "full" && calls >= at) return errno = ENOSPC, Fate::failed;
  if (calls != at) return Fate::made;
  if (fault == "kill") ::_exit(137);
  if (fault == "fail") return errno = EIO, Fate::failed;
  return fault == "short" ? Fate::halved : fault == "drop" ? Fate::dropped : Fate::made;
}

void tell(const std::string& kind, const std::string& path, const std::string& more = "") {
  static const std::string file = variable("MPT_CALLS");
  if (file.empty()) return;
  const int descriptor =
      next_of<int(const char*, int, ...)>("open")(file.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  const std::string line = kind + "\t" + path + "\t" + more + "\n";
  (void)!next_of<ssize_t(int, const void*, size_t)>("write")(descriptor, line.data(), line.size());
  ::close(descriptor);
}

std::string hexadecimal(const char* bytes, size_t count) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(bytes[i]);
    text += kDigits[byte / 16];
    text += kDigits[byte % 16];
  }
  return text;
}

// A call on a path that returns 0 or -1.
template <class Make>
int on_path(const char* kind, const char* path, const std::string& more, Make&& make) {
  if (!is_below(path)) return make();
  const std::lock_guard lock(calls_mutex);
  const Fate fate = fate_of_next();
  if (fate == Fate::failed) return -1;
  if (fate == Fate::dropped) return 0;
  const int result = make();
  if (result == 0) tell(kind, path, more);
  return result;
}

int open_counted(const char* name, const char* path, int flags, mode_t mode) {
  const auto really = next_of<int(const char*, int, ...)>(name);
  if ((flags & O_CREAT) == 0 || !is_below(path)) return really(path, flags, mode);
  const std::lock_guard lock(calls_mutex);
  wait_to_create(path);
  if (fate_of_next() == Fate::failed) return -1;
  const int result = really(path, flags, mode);
  if (result >= 0) tell("create", path);
  return result;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = (flags & O_CREAT) != 0 ? mode_t(va_arg(list, unsigned)) : mode_t(0);
  va_end(list);
  return open_counted("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list list;
  va_start(list, flags);
  const auto mode = (flags & O_CREAT) != 0 ? mode_t(va_arg(list, unsigned)) : mode_t(0);
  va_end(list);
  return open_counted("open64", path, flags, mode);
}

ssize_t write(int descriptor, const void* data, size_t count) {
  const auto really = next_of<ssize_t(int, const void*, size_t)>("write");
  const std::string path = path_of(descriptor);
  if (!is_below(path)) return really(descriptor, data, count);
  const std::lock_guard lock(calls_mutex);
  const Fate fate = fate_of_next();
  if (fate == Fate::failed) return -1;
  if (fate == Fate::dropped) return ssize_t(count);
  const ssize_t written = really(descriptor, data, fate == Fate::halved ? (count + 1) / 2 : count);
  if (written > 0) tell("write", path, hexadecimal(static_cast<const char*>(data), size_t(written)));
  return written;
}

int fsync(int descriptor) {
  const std::string path = path_of(descriptor);
  return on_path("fsync", path.c_str(), "", [&] { return next_of<int(int)>("fsync")(descriptor); });
}

int rename(const char* from, const char* to) {
  return on_path("rename", from, to,
                 [&] { return next_of<int(const char*, const char*)>("rename")(from, to); });
}

int remove(const char* path) {
  return on_path("remove", path, "", [&] { return next_of<int(const char*)>("remove")(path); });
}

int unlink(const char* path) noexcept {
  return on_path("remove", path, "", [&] { return next_of<int(const char*)>("unlink")(path); });
}

int mkdir(const char* path, mode_t mode) noexcept {
  return on_path("mkdir", path, "", [&] { return next_of<int(const char*, mode_t)>("mkdir")(path, mode); });
}

}  // extern "C"
