// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <new>
#include <set>
#include <thread>

#include "base/error.h"
#include "runtime/comm/messages/message_world.h"
#include "runtime/comm/sockets/socket.h"

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
constexpr uint32_t kProtocolVersion = 1;

class SocketWire final : public Wire {
 public:
  SocketWire(const SocketWorldOptions& options, std::vector<Socket> peers)
      : own_(options.launch.process), peers_(std::move(peers)), locks_(peers_.size()) {
    for (Socket& peer : peers_) {
      if (peer) peer.set_send_timeout(options.timeout);
    }
  }

  int process() const override { return own_; }
  int processes() const override { return int(peers_.size()); }

  void start(Arrived arrived, Lost lost) override {
    for (int p = 0; p < processes(); ++p) {
      if (!peers_[size_t(p)]) continue;
      readers_.emplace_back([=, this] {
        if (!read(peers_[size_t(p)], arrived)) lost(p);
      });
    }
  }

  void send(int process, const Frame& frame, const void* data) override {
    const std::lock_guard lock(locks_[size_t(process)]);
    peers_[size_t(process)].send_all(&frame, sizeof frame);
    if (frame.bytes > 0) peers_[size_t(process)].send_all(data, size_t(frame.bytes));
  }

  void close(bool cut) override {
    for (Socket& peer : peers_) {
      if (peer && cut) peer.shut_down();
    }
    for (std::thread& reader : readers_) reader.join();
  }

 private:
  // Reads until the last frame; false if the connection ended before it.
  static bool read(Socket& peer, const Arrived& arrived) {
    try {
      Frame frame{};
      do {
        if (!peer.receive_all(&frame, sizeof frame) || !frame.is_sound()) return false;
        std::vector<char> message;
        if (!read_message(peer, size_t(frame.bytes), message)) return false;
        arrived(frame, std::move(message));
      } while (!frame.is_last());
      return true;
    } catch (const RunError&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    }
  }

  // Memory grows with the bytes that arrive, so a false length allocates nothing.
  static bool read_message(Socket& peer, size_t bytes, std::vector<char>& message) {
    constexpr size_t kFirst = size_t{64} << 20;
    if (bytes <= kFirst) message.reserve(bytes);
    while (message.size() < bytes) {
      const size_t got = message.size();
      message.resize(std::min(bytes, std::max(kFirst, 2 * got)));
      if (!peer.receive_all(message.data() + got, message.size() - got)) return false;
    }
    return true;
  }

  const int own_;
  std::vector<Socket> peers_;  // by process; this one's is empty
  std::vector<std::mutex> locks_;
  std::vector<std::thread> readers_;
};

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
      throw RunError(fmt::format(
          "{}\n    --master-port PORT chooses another port, the same for all processes", error.what()));
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
      throw RunError(
          fmt::format("the run did not come together: process 0, or another program at {}, port {}: {}",
                      launch.master_address, launch.master_port, error.what()));
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
    if (const Hello own = make_hello(o_, 0, "");
        std::memcmp(own.plan_digest, hello.plan_digest, sizeof own.plan_digest) != 0)
      return dismiss(caller);
    hellos_[hello.process] = hello;
    peers_[hello.process] = std::move(caller.socket);
  }

  // It may be a stranger, or may be restarted with the right plan: the run still waits for this process.
  void dismiss(const Caller& caller) {
    const uint32_t process = caller.hello.process;
    if (differing_.insert(process).second)
      std::fputs(fmt::format("mpt-run: note: process {} called with another plan.json\n", process).c_str(),
                 stderr);
    const uint32_t verdict = 0;
    try {
      caller.socket.send_all(&verdict, sizeof verdict, patience_);
    } catch (const RunError&) {  // it is gone
    }
  }

  std::string missing(size_t first) const {
    std::string names;
    for (size_t p = first; p < peers_.size(); ++p) {
      if (!peers_[p]) names += (names.empty() ? "" : ", ") + std::to_string(p);
    }
    return names;
  }

  [[noreturn]] void give_up(size_t first) const {
    if (!differing_.empty()) throw_other_plan(fmt::format("{}", fmt::join(differing_, ", ")));
    throw RunError(fmt::format("the run did not come together within {} s: process {} did not call",
                               std::chrono::duration<double>(o_.timeout).count(), missing(first)));
  }

  const SocketWorldOptions& o_;
  Patience patience_;
  std::vector<Hello> hellos_;
  std::vector<Socket> peers_;
  std::set<uint32_t> differing_;  // processes that called with another plan
};

}  // namespace

std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options) {
  check_processes(options.launch.launcher, options.launch.processes, options.ranks);
  return make_message_world(std::make_unique<SocketWire>(options, Meeting(options).hold()), options.ranks,
                            options.timeout);
}

}  // namespace mpt::runtime
