// SPDX-License-Identifier: Apache-2.0

#include <cstring>
#include <set>

#include "base/error.h"
#include "runtime/comm/sockets/socket_world.h"

namespace mpt::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// The first message of a process. It is plain numbers and fixed texts of known length, and may come from a
// stranger.
struct Hello {
  char magic[8];  // "mpt-run\0"
  uint32_t version, process, processes, port;
  char plan_digest[16];
  char address[64];
};
constexpr char kMagic[8] = "mpt-run";
constexpr uint32_t kProtocolVersion = 2;

[[noreturn]] void throw_other_plan(const std::string& processes) {
  refuse_input("plan", fmt::format("process {} was started with another one", processes),
               "the same plan.json everywhere", "copy it to every host");
}

Hello make_hello(const SocketWorldOptions& o, int port, const std::string& address) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof hello.magic);
  hello.version = kProtocolVersion;
  hello.process = uint32_t(o.launch.process);
  hello.processes = uint32_t(o.launch.processes);
  hello.port = uint32_t(port);
  o.plan_digest.copy(hello.plan_digest, sizeof hello.plan_digest);
  address.copy(hello.address, sizeof hello.address - 1);
  return hello;
}

// A caller, and the part of its hello that has arrived.
struct Caller {
  Socket socket;
  Hello hello{};
  size_t got = 0;

  bool is_complete() const { return got == sizeof hello; }
  // False at the connection's end.
  bool receive() {
    const auto received = socket.receive_some(reinterpret_cast<char*>(&hello) + got, sizeof hello - got);
    got += received.value_or(0);
    return received != size_t{0};
  }
};

// Process 0 receives every process's address and sends all of them to everyone. Then each process connects to
// those with lower numbers.
class Meeting {
 public:
  explicit Meeting(const SocketWorldOptions& options)
      : o_(options),
        patience_(Clock::now() + options.timeout, options.stop),
        hellos_(size_t(options.launch.processes)),
        peers_(size_t(options.launch.processes)) {}

  std::vector<Socket> hold() {
    o_.launch.process == 0 ? receive_everybody() : introduce();
    return std::move(peers_);
  }

 private:
  // All callers are read at the same time, so a silent stranger does not delay a process of the run.
  static constexpr size_t kMostStrangers = 64;

  void receive_everybody() {
    const Socket listener = listen_as_master();
    hear_callers(listener, 1);
    const uint32_t verdict = 1;
    for (size_t p = 1; p < peers_.size(); ++p) {
      peers_[p].send_all(&verdict, sizeof verdict, patience_);
      peers_[p].send_all(hellos_.data(), hellos_.size() * sizeof(Hello), patience_);
    }
  }

  Socket listen_as_master() const {
    try {
      return Socket::listen(o_.launch.master_address, o_.launch.master_port);
    } catch (const RunError& error) {
      fail_run("{}\n    --master-port PORT chooses another port, the same for all processes", error.what());
    }
  }

  void introduce() {
    const Launch& launch = o_.launch;
    Socket master = Socket::connect(launch.master_address, launch.master_port, patience_);
    const Socket listener = Socket::listen(master.address(), 0);
    const Hello own = make_hello(o_, listener.port(), master.address());
    uint32_t verdict = 0;
    try {
      master.send_all(&own, sizeof own, patience_);
      if (!master.receive_all(&verdict, sizeof verdict, patience_) ||
          (verdict == 1 && !master.receive_all(hellos_.data(), hellos_.size() * sizeof(Hello), patience_)))
        throw RunError("the connection has ended");
    } catch (const RunError& error) {
      fail_run("the run did not come together: process 0, or another program at {}, port {}: {}",
               launch.master_address, launch.master_port, error.what());
    }
    if (verdict != 1) throw_other_plan(std::to_string(launch.process));
    peers_[0] = std::move(master);
    for (int p = 1; p < launch.process; ++p) {
      Hello& other = hellos_[size_t(p)];
      other.address[sizeof other.address - 1] = '\0';
      peers_[size_t(p)] = Socket::connect(other.address, int(other.port), patience_);
      peers_[size_t(p)].send_all(&own, sizeof own, patience_);
    }
    hear_callers(listener, size_t(launch.process) + 1);
  }

  // Returns when every process from `first` on has called.
  void hear_callers(const Socket& listener, size_t first) {
    std::vector<Caller> callers;
    const auto first_peer = peers_.begin() + std::ptrdiff_t(first);
    while (std::any_of(first_peer, peers_.end(), [](const Socket& peer) { return !peer; })) {
      std::vector<const Socket*> sockets{&listener};
      for (const Caller& caller : callers) sockets.push_back(&caller.socket);
      const std::vector<bool> ready = wait_for_any(sockets, patience_);
      if (Clock::now() >= patience_.deadline) give_up(first);
      for (size_t i = callers.size(); i-- > 0;) {
        if (!ready[i + 1]) continue;
        const bool goes_on = callers[i].receive() && !callers[i].is_complete();
        if (callers[i].is_complete()) admit(callers[i], first);
        if (!goes_on) callers.erase(callers.begin() + std::ptrdiff_t(i));
      }
      if (ready[0]) accept(listener, callers);
    }
  }

  // If there are too many, the oldest caller without a complete hello is dropped.
  void accept(const Socket& listener, std::vector<Caller>& callers) const {
    if (callers.size() == peers_.size() + kMostStrangers) callers.erase(callers.begin());
    try {
      callers.push_back({listener.accept(patience_)});
    } catch (const RunError&) {  // too many files are open
      if (callers.empty()) throw;
      callers.erase(callers.begin());
    }
  }

  // Takes the caller's connection if it is a process of this run that is still missing.
  void admit(Caller& caller, size_t first) {
    Hello& hello = caller.hello;
    hello.address[sizeof hello.address - 1] = '\0';
    if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0 || hello.version != kProtocolVersion ||
        hello.processes != peers_.size() || hello.process < first || hello.process >= hello.processes ||
        peers_[hello.process])
      return;
    if (std::memcmp(make_hello(o_, 0, "").plan_digest, hello.plan_digest, sizeof hello.plan_digest) != 0)
      return dismiss(caller);
    hellos_[hello.process] = hello;
    peers_[hello.process] = std::move(caller.socket);
  }

  // It may be a stranger, or may be restarted with the right plan: the run still waits for this process.
  void dismiss(const Caller& caller) {
    const uint32_t process = caller.hello.process;
    if (differing_.insert(process).second)
      warn(fmt::format("mpt-run: note: process {} called with another plan.json", process));
    const uint32_t verdict = 0;
    try {
      caller.socket.send_all(&verdict, sizeof verdict, patience_);
    } catch (const RunError&) {  // it is gone
    }
  }

  [[noreturn]] void give_up(size_t first) const {
    if (!differing_.empty()) throw_other_plan(fmt::format("{}", fmt::join(differing_, ", ")));
    std::vector<size_t> missing;
    for (size_t p = first; p < peers_.size(); ++p)
      if (!peers_[p]) missing.push_back(p);
    fail_run("the run did not come together within {} s: process {} did not call",
             std::chrono::duration<double>(o_.timeout).count(), fmt::join(missing, ", "));
  }

  const SocketWorldOptions& o_;
  Patience patience_;
  std::vector<Hello> hellos_;
  std::vector<Socket> peers_;
  std::set<uint32_t> differing_;  // processes that called with another plan
};

}  // namespace

std::vector<Socket> meet_processes(const SocketWorldOptions& options) {
  const Launch& launch = options.launch;
  if (options.ranks % launch.processes != 0)
    refuse_input(launch.launcher, fmt::format("{} processes", launch.processes),
                 fmt::format("a number that divides the plan's {} ranks", options.ranks),
                 fmt::format("start {} processes, or plan for another number of devices", options.ranks));
  return Meeting(options).hold();
}

}  // namespace mpt::runtime
