// SPDX-License-Identifier: Apache-2.0
#include "runtime/supervisor.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/error.h"

namespace mpt::runtime {
namespace {

std::atomic<pid_t> child{0};

void pass_on(int signal) {
  if (child > 0) ::kill(child, signal);
}

// The exit code of the child, or -signal.
int wait_for(pid_t pid) {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) throw RunError(fmt::format("cannot wait for the run ({})", std::strerror(errno)));
  }
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

int run_supervised(int64_t restarts, const std::function<int(bool)>& attempt) {
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, pass_on);
  for (int64_t attempts = 0;; ++attempts) {
    std::fflush(nullptr);
    const pid_t pid = ::fork();
    if (pid < 0) throw RunError(fmt::format("cannot start the run ({})", std::strerror(errno)));
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // no run outlives the one who watches it
      for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, SIG_DFL);
      const int code = run_program("mpt-run", [&] { return attempt(attempts > 0); });
      std::fflush(nullptr);
      ::_exit(code);
    }
    child = pid;
    const int code = wait_for(pid);
    child = 0;
    const bool final =
        code == kExitOk || code == kExitUserError || code == kExitNoDevice || code == kExitInterrupted;
    if (final || attempts == restarts) return code < 0 ? kExitRunFailed : code;
    fmt::print(
        stderr, "mpt-run: the run {}; restart {} of {}\n",
        code < 0 ? fmt::format("was ended by signal {}", -code) : fmt::format("failed with code {}", code),
        attempts + 1, restarts);
  }
}

}  // namespace mpt::runtime
