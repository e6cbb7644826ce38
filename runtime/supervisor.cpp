// SPDX-License-Identifier: Apache-2.0
#include "runtime/program.h"

#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <new>

#include "base/error.h"

namespace mpt::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// A launcher may send one signal twice: to the process and to its group.
constexpr std::chrono::seconds kSameWish{1};
constexpr double kLongestPause_s = 60.0;

// A flag shared by child and parent.
std::shared_ptr<std::atomic<bool>> shared_flag() {
  void* const page =
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) throw std::bad_alloc();
  return {new (page) std::atomic<bool>(false), [](auto* flag) { ::munmap(flag, sizeof *flag); }};
}

// Signals are blocked here and taken one by one in the parent's wait, so that none is lost. Children get the
// parent's original signal mask.
class Supervisor {
 public:
  Supervisor() {
    sigemptyset(&watched_);
    for (const int signal : {SIGCHLD, SIGINT, SIGTERM}) {
      std::signal(signal, SIG_DFL);
      sigaddset(&watched_, signal);
    }
    struct sigaction hang_up {};
    sigaction(SIGHUP, nullptr, &hang_up);
    if (hang_up.sa_handler != SIG_IGN) sigaddset(&watched_, SIGHUP);  // nohup
    pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  }
  // The process ends now with the exit code of the run. A late signal must not replace it, such as the second
  // one of a launcher that signals process and group.
  ~Supervisor() {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_IGN);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Supervisor& operator=(Supervisor&&) = delete;

  bool is_stopping() const { return stopped_at_.has_value(); }

  pid_t start(const std::function<int()>& body) const {
    std::fflush(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child < 0) fail_run("cannot start the run ({})", std::strerror(errno));
    if (child > 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a run must end with its supervisor
    if (::getppid() != parent) ::_exit(kExitRunFailed);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    const int code = run_program("mpt-run", body);
    std::fflush(nullptr);
    ::_exit(code);
  }

  // Returns the exit code of the child, or -signal. Passes on signals that arrive while it runs.
  int wait_for(pid_t child) {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(child, &status, WNOHANG)) != child;) {
      if (ended < 0) fail_run("cannot wait for the run ({})", std::strerror(errno));
      const int signal = ::sigwaitinfo(&watched_, nullptr);
      if (signal > 0 && signal != SIGCHLD) stop(signal, child);
    }
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
  }

  void pause(double seconds) {
    const auto end =
        Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    while (!is_stopping()) {
      const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Clock::now()).count();
      if (left <= 0) return;
      const timespec patience{left / 1'000'000'000, left % 1'000'000'000};
      const int signal = ::sigtimedwait(&watched_, nullptr, &patience);
      if (signal > 0 && signal != SIGCHLD) stopped_at_ = Clock::now();
    }
  }

 private:
  void stop(int signal, pid_t child) {
    const auto now = Clock::now();
    if (!stopped_at_) {
      stopped_at_ = now;
      ::kill(child, signal);
    } else if (now - *stopped_at_ >= kSameWish) {
      ::kill(child, SIGKILL);
    }
  }

  sigset_t watched_{}, before_{};
  std::optional<Clock::time_point> stopped_at_;
};

bool is_final(int code) {
  return code == kExitOk || code == kExitUserError || code == kExitNoDevice || code == kExitInterrupted;
}

// The exit code of a run that was asked to stop.
int code_after_stop(int code) {
  if (code >= 0) return code;
  const int signal = -code;
  const bool asked = signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGKILL;
  warn(fmt::format("mpt-run: stopped as asked; the run was ended by signal {} and saved nothing more",
                   signal));
  return asked ? kExitInterrupted : kExitRunFailed;
}

}  // namespace

int run_supervised(int64_t restarts, const std::function<int(const Attempt&)>& attempt,
                   double first_pause_s) {
  Supervisor supervisor;
  const auto has_trained = shared_flag();
  double pause_s = first_pause_s;
  for (int64_t attempts = 0;; ++attempts) {
    const pid_t child = supervisor.start([&] { return attempt({attempts > 0, *has_trained}); });
    const int code = supervisor.wait_for(child);
    if (supervisor.is_stopping()) return code_after_stop(code);
    const std::string end =
        code < 0 ? fmt::format("was ended by signal {}", -code) : fmt::format("failed with code {}", code);
    if (is_final(code) || *has_trained || attempts == restarts) {
      if (code < 0) warn(fmt::format("mpt-run: the run {}", end));
      return code < 0 ? kExitRunFailed : code;
    }
    warn(
        fmt::format("mpt-run: the run {}; restart {} of {} in {:g} s", end, attempts + 1, restarts, pause_s));
    supervisor.pause(pause_s);
    if (supervisor.is_stopping()) {
      warn("mpt-run: stopped as asked; the run is not started again");
      return kExitInterrupted;
    }
    pause_s = std::min(2.0 * pause_s, kLongestPause_s);
  }
}

}  // namespace mpt::runtime
