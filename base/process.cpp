// SPDX-License-Identifier: Apache-2.0
#include "base/process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace mpt {
namespace {

constexpr int kNotStarted = 127, kBySignal = 128;

class FileActions {
 public:
  FileActions() { ::posix_spawn_file_actions_init(&actions_); }
  ~FileActions() { ::posix_spawn_file_actions_destroy(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;

  void open(int descriptor, const char* path, int flags) {
    ::posix_spawn_file_actions_addopen(&actions_, descriptor, path, flags, 0);
  }
  void duplicate(int from, int to) { ::posix_spawn_file_actions_adddup2(&actions_, from, to); }
  const posix_spawn_file_actions_t* get() const { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_{};
};

std::string read_all(int descriptor) {
  std::string text;
  std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count > 0) text.append(buffer.data(), size_t(count));
    if (count == 0 || (count < 0 && errno != EINTR)) return text;
  }
}

}  // namespace

ProcessResult run_process(const std::vector<std::string>& arguments, const std::filesystem::path& input,
                          bool quiet) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw RunError(fmt::format("cannot start {} ({})", arguments.front(), std::strerror(errno)));
  FileActions actions;
  actions.open(STDIN_FILENO, input.empty() ? "/dev/null" : input.c_str(), O_RDONLY);
  actions.duplicate(ends[1], STDOUT_FILENO);
  if (quiet) actions.open(STDERR_FILENO, "/dev/null", O_WRONLY);
  pid_t child = 0;
  const int error = ::posix_spawnp(&child, words.front(), actions.get(), nullptr, words.data(), environ);
  ::close(ends[1]);
  ProcessResult result;
  if (error == 0) result.output = read_all(ends[0]);
  ::close(ends[0]);
  if (error == ENOENT) return {kNotStarted, ""};
  if (error != 0)
    throw RunError(fmt::format("cannot start {} ({})", arguments.front(), std::strerror(error)));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFSIGNALED(status) ? kBySignal + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

}  // namespace mpt
