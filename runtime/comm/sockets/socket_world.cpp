// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket_world.h"

#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.h"
#include "runtime/comm/messages/message_world.h"
#include "runtime/comm/sockets/socket.h"

namespace mpt::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// What a process says first. Plain numbers and fixed texts: nothing in it is trusted but its length.
struct Hello {
  char magic[8];  // "mpt-run\0"
  uint32_t version, process, processes, port;
  char plan_digest[16];
  char address[64];
};
constexpr char kMagic[8] = "mpt-run";
constexpr uint32_t kVersion = 1;

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
  // Until the last frame; false where the connection ended before.
  static bool read(Socket& peer, const Arrived& arrived) {
    try {
      Frame frame{};
      do {
        if (!peer.receive_all(&frame, sizeof frame) || !frame.is_sound()) return false;
        std::vector<char> message(static_cast<size_t>(frame.bytes));
        if (frame.bytes > 0 && !peer.receive_all(message.data(), message.size())) return false;
        arrived(frame, std::move(message));
      } while (!frame.is_last());
      return true;
    } catch (const RunError&) {
      return false;
    }
  }

  const int own_;
  std::vector<Socket> peers_;  // by process; the own one is empty
  std::vector<std::mutex> locks_;
  std::vector<std::thread> readers_;
};

Hello make_hello(const SocketWorldOptions& o, int port, const std::string& address) {
  Hello hello{};
  std::memcpy(hello.magic, kMagic, sizeof hello.magic);
  hello.version = kVersion;
  hello.process = uint32_t(o.launch.process);
  hello.processes = uint32_t(o.launch.processes);
  hello.port = uint32_t(port);
  o.plan_digest.copy(hello.plan_digest, sizeof hello.plan_digest);
  address.copy(hello.address, sizeof hello.address - 1);
  return hello;
}

// Nothing where a stranger, or a process of another run, called.
std::optional<Hello> read_hello(const Socket& socket, const SocketWorldOptions& o) {
  Hello hello{};
  try {
    socket.set_receive_timeout(std::chrono::seconds(5));
    if (!socket.receive_all(&hello, sizeof hello)) return std::nullopt;
    socket.set_receive_timeout({});
  } catch (const RunError&) {
    return std::nullopt;
  }
  hello.address[sizeof hello.address - 1] = '\0';
  if (std::memcmp(hello.magic, kMagic, sizeof kMagic) != 0 || hello.version != kVersion ||
      hello.processes != uint32_t(o.launch.processes) || hello.process >= hello.processes)
    return std::nullopt;
  return hello;
}

// Process 0 hears from everyone where they listen, tells everyone, and each calls those before it.
class Meeting {
 public:
  explicit Meeting(const SocketWorldOptions& options)
      : o_(options), deadline_(Clock::now() + options.timeout), hellos_(size_t(options.launch.processes)) {}

  std::vector<Socket> hold() {
    std::vector<Socket> peers(static_cast<size_t>(o_.launch.processes));
    o_.launch.process == 0 ? receive_all(peers) : introduce(peers);
    return peers;
  }

 private:
  void receive_all(std::vector<Socket>& peers) {
    const Socket listener = Socket::listen(o_.launch.master_address, o_.launch.master_port);
    for (int missing = o_.launch.processes - 1; missing > 0;) {
      Socket caller = listener.accept(deadline_);
      const auto hello = read_hello(caller, o_);
      if (!hello || hello->process == 0 || peers[hello->process]) continue;
      hellos_[hello->process] = *hello;
      peers[hello->process] = std::move(caller);
      --missing;
    }
    const Hello own = make_hello(o_, 0, "");
    std::string differing;
    for (size_t p = 1; p < hellos_.size(); ++p) {
      if (std::memcmp(own.plan_digest, hellos_[p].plan_digest, sizeof own.plan_digest) != 0)
        differing += fmt::format("{}{}", differing.empty() ? "" : ", ", p);
    }
    const uint32_t verdict = differing.empty() ? 1 : 0;
    for (size_t p = 1; p < peers.size(); ++p) {
      peers[p].send_all(&verdict, sizeof verdict);
      if (verdict == 1) peers[p].send_all(hellos_.data(), hellos_.size() * sizeof(Hello));
    }
    if (verdict == 0) throw_other_plan(differing);
  }

  void introduce(std::vector<Socket>& peers) {
    Socket master = Socket::connect(o_.launch.master_address, o_.launch.master_port, deadline_);
    const Socket listener = Socket::listen(master.address(), 0);
    const Hello own = make_hello(o_, listener.port(), master.address());
    master.send_all(&own, sizeof own);
    uint32_t verdict = 0;
    if (!master.receive_all(&verdict, sizeof verdict))
      throw RunError("process 0 ended while the run came together");
    if (verdict == 0) throw_other_plan(std::to_string(o_.launch.process));
    if (!master.receive_all(hellos_.data(), hellos_.size() * sizeof(Hello)))
      throw RunError("process 0 ended while the run came together");
    peers[0] = std::move(master);
    for (int p = 1; p < o_.launch.process; ++p) {
      const Hello& other = hellos_[size_t(p)];
      peers[size_t(p)] = Socket::connect(other.address, int(other.port), deadline_);
      peers[size_t(p)].send_all(&own, sizeof own);
    }
    for (int missing = o_.launch.processes - 1 - o_.launch.process; missing > 0;) {
      Socket caller = listener.accept(deadline_);
      const auto hello = read_hello(caller, o_);
      if (!hello || int(hello->process) <= o_.launch.process || peers[hello->process]) continue;
      peers[hello->process] = std::move(caller);
      --missing;
    }
  }

  const SocketWorldOptions& o_;
  Socket::Deadline deadline_;
  std::vector<Hello> hellos_;
};

}  // namespace

std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options) {
  check_processes(options.launch.launcher, options.launch.processes, options.ranks);
  return make_message_world(std::make_unique<SocketWire>(options, Meeting(options).hold()), options.ranks,
                            options.timeout);
}

}  // namespace mpt::runtime
