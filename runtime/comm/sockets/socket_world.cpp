// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket_world.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>
#include <thread>

#include "core/digest.h"
#include "core/error.h"
#include "runtime/comm/reduction.h"
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

// In front of every message. group 0: the run is to end, with the reason; 1: good-bye.
struct Frame {
  uint64_t group;
  int32_t from, to;
  int64_t bytes;
};
constexpr uint64_t kAbort = 0, kGoodBye = 1;
constexpr int64_t kMostBytes = int64_t{1} << 40;
constexpr int64_t kMostReason = 4096;

uint64_t group_id(const std::string& name, const std::vector<int>& members) {
  Digest digest;
  digest.add(name);
  for (const int member : members) digest.add(int64_t{member});
  return std::max<uint64_t>(2, std::stoull(digest.text(), nullptr, 16));
}

// Connections to the other processes, and what arrived and was not yet asked for.
class Post {
 public:
  Post(const SocketWorldOptions& options, std::vector<Socket> peers)
      : options_(options), peers_(std::move(peers)), locks_(peers_.size()) {
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (!peers_[p]) continue;
      peers_[p].set_send_timeout(options_.timeout);
      readers_.emplace_back([this, p] { read(p); });
    }
  }

  ~Post() {
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (!peers_[p]) continue;
      try {
        send_frame(p, {kGoodBye, 0, 0, 0}, nullptr);
      } catch (const RunError&) {  // it is gone already
      }
      if (is_aborted_) peers_[p].shut_down();
    }
    for (std::thread& reader : readers_) reader.join();
  }

  void send(uint64_t group, int from, int to, const void* data, int64_t bytes) {
    const size_t process = size_t(to / ranks_per_process());
    if (int(process) == options_.launch.process) {
      const auto* at = static_cast<const char*>(data);
      return deliver({group, from, to}, {at, at + bytes});
    }
    try {
      send_frame(process, {group, from, to, bytes}, data);
    } catch (const RunError& error) {
      abort(fmt::format("rank {} cannot be reached: {}", to, error.what()));
      throw CommunicationError(reason());
    }
  }

  template <class Describe>
  void receive(uint64_t group, int from, int to, void* data, int64_t bytes, Describe&& describe) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{group, from, to}];
    const bool arrived =
        changed_.wait_for(lock, options_.timeout, [&] { return !box.empty() || is_aborted_; });
    if (!arrived) {
      throw CommunicationError(fmt::format(
          "timeout after {} s in {}", std::chrono::duration<double>(options_.timeout).count(), describe()));
    }
    if (box.empty()) throw CommunicationError(fmt::format("stopped while in {}: {}", describe(), reason_));
    const std::vector<char> message = std::move(box.front());
    box.pop_front();
    lock.unlock();
    MPT_CHECK(int64_t(message.size()) == bytes, "{} bytes from rank {} in {}, expected {}", message.size(),
              from, describe(), bytes);
    if (bytes > 0) std::memcpy(data, message.data(), size_t(bytes));
  }

  void abort(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (is_aborted_) return;
      reason_ = reason.substr(0, size_t(kMostReason));
      is_aborted_ = true;
    }
    changed_.notify_all();
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (!peers_[p]) continue;
      try {
        send_frame(p, {kAbort, 0, 0, int64_t(reason_.size())}, reason_.data());
      } catch (const RunError&) {  // the one that is gone
      }
    }
  }

  bool aborted() const { return is_aborted_; }
  std::string reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  int ranks_per_process() const { return options_.ranks / options_.launch.processes; }
  int process() const { return options_.launch.process; }

 private:
  struct Address {
    uint64_t group;
    int from, to;
    auto operator<=>(const Address&) const = default;
  };

  void deliver(const Address& address, std::vector<char> message) {
    {
      const std::lock_guard lock(mutex_);
      boxes_[address].push_back(std::move(message));
    }
    changed_.notify_all();
  }

  void send_frame(size_t process, const Frame& frame, const void* data) {
    const std::lock_guard lock(locks_[process]);
    peers_[process].send_all(&frame, sizeof frame);
    if (frame.bytes > 0) peers_[process].send_all(data, size_t(frame.bytes));
  }

  void read(size_t process) {
    try {
      while (true) {
        Frame frame{};
        if (!peers_[process].receive_all(&frame, sizeof frame)) break;
        if (frame.group == kGoodBye) return;
        const int64_t most = frame.group == kAbort ? kMostReason : kMostBytes;
        if (frame.bytes < 0 || frame.bytes > most) break;
        std::vector<char> message(static_cast<size_t>(frame.bytes));
        if (frame.bytes > 0 && !peers_[process].receive_all(message.data(), message.size())) break;
        if (frame.group == kAbort) return abort({message.begin(), message.end()});
        deliver({frame.group, frame.from, frame.to}, std::move(message));
      }
    } catch (const RunError&) {
    }
    const int first = int(process) * ranks_per_process(), last = first + ranks_per_process() - 1;
    abort(first == last
              ? fmt::format("rank {} died: its connection is gone", first)
              : fmt::format("the process of ranks {} to {} died: its connection is gone", first, last));
  }

  const SocketWorldOptions options_;
  std::vector<Socket> peers_;  // by process; the own one is empty
  std::vector<std::mutex> locks_;
  std::vector<std::thread> readers_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::deque<std::vector<char>>> boxes_;
  std::atomic<bool> is_aborted_{false};
  std::string reason_;
};

// Collectives out of messages. What is small goes whole from each to each; what is large in slices.
class MessageCommunicator final : public Communicator {
 public:
  MessageCommunicator(std::shared_ptr<Post> post, std::string name, std::vector<int> members, int rank)
      : post_(std::move(post)),
        name_(std::move(name)),
        members_(std::move(members)),
        rank_(rank),
        id_(group_id(name_, members_)) {}

  int rank() const override { return rank_; }
  int size() const override { return int(members_.size()); }

  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    if (size() == 1 || count == 0) return;
    const int64_t unit = size_of(type);
    char* const own = static_cast<char*>(data);
    if (count * unit <= kWholeBytes) {
      for_others([&](int r) { put(r, own, count * unit); });
      std::vector<std::vector<char>> parts = gather_parts(own, count * unit, "all_reduce");
      reduce(parts, operation, type, count, own);
      return;
    }
    const auto slice = [&](int r) { return std::pair{count * r / size(), count * (r + 1) / size()}; };
    for_others(
        [&](int r) { put(r, own + slice(r).first * unit, (slice(r).second - slice(r).first) * unit); });
    const auto [begin, end] = slice(rank_);
    std::vector<std::vector<char>> parts =
        gather_parts(own + begin * unit, (end - begin) * unit, "all_reduce");
    reduce(parts, operation, type, end - begin, own + begin * unit);
    for_others([&](int r) { put(r, own + begin * unit, (end - begin) * unit); });
    for_others([&](int r) {
      take(r, own + slice(r).first * unit, (slice(r).second - slice(r).first) * unit, "all_reduce");
    });
  }

  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    const int64_t bytes = count * size_of(type);
    char* const to = static_cast<char*>(receive);
    for_others([&](int r) { put(r, send, bytes); });
    if (bytes > 0) std::memmove(to + rank_ * bytes, send, size_t(bytes));
    for_others([&](int r) { take(r, to + r * bytes, bytes, "all_gather"); });
  }

  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    const int64_t bytes = count * size_of(type);
    const char* const from = static_cast<const char*>(send);
    for_others([&](int r) { put(r, from + r * bytes, bytes); });
    std::vector<std::vector<char>> parts = gather_parts(from + rank_ * bytes, bytes, "reduce_scatter");
    reduce(parts, ReduceOperation::sum, type, count, receive);
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    if (rank_ == root) {
      for_others([&](int r) { put(r, data, bytes); });
    } else {
      take(root, data, bytes, "broadcast");
    }
  }

  void send(const void* data, int64_t bytes, int peer) override { put(peer, data, bytes); }
  void receive(void* data, int64_t bytes, int peer) override { take(peer, data, bytes, "receive"); }

  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    put(to, data, bytes);
    take(from, received, bytes, "send_receive");
  }

  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    const char* from = static_cast<const char*>(data);
    const char* own = nullptr;
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) own = from;
      if (r != rank_) put(r, from, sent[size_t(r)]);
      from += sent[size_t(r)];
    }
    char* to = static_cast<char*>(received);
    for (int r = 0; r < size(); ++r) {
      const int64_t bytes = received_bytes[size_t(r)];
      if (r != rank_) take(r, to, bytes, "all_to_all");
      if (r == rank_ && bytes > 0) std::memcpy(to, own, size_t(bytes));
      to += bytes;
    }
  }

  void barrier() override {
    if (rank_ == 0) for_others([&](int r) { take(r, nullptr, 0, "barrier"); });
    if (rank_ != 0) put(0, nullptr, 0);
    if (rank_ == 0) for_others([&](int r) { put(r, nullptr, 0); });
    if (rank_ != 0) take(0, nullptr, 0, "barrier");
  }

 private:
  static constexpr int64_t kWholeBytes = 4096;

  template <class F>
  void for_others(F&& body) {
    for (int r = 0; r < size(); ++r) {
      if (r != rank_) body(r);
    }
  }

  void put(int peer, const void* data, int64_t bytes) {
    post_->send(id_, members_[size_t(rank_)], members_[size_t(peer)], data, bytes);
  }

  void take(int peer, void* data, int64_t bytes, const char* operation) {
    post_->receive(id_, members_[size_t(peer)], members_[size_t(rank_)], data, bytes, [&] {
      return fmt::format("{} of group {}, rank {} (waiting for rank {})", operation, name_,
                         members_[size_t(rank_)], members_[size_t(peer)]);
    });
  }

  std::vector<std::vector<char>> gather_parts(const char* own, int64_t bytes, const char* operation) {
    std::vector<std::vector<char>> parts(static_cast<size_t>(size()),
                                         std::vector<char>(static_cast<size_t>(bytes)));
    if (bytes > 0) std::memcpy(parts[size_t(rank_)].data(), own, size_t(bytes));
    for_others([&](int r) { take(r, parts[size_t(r)].data(), bytes, operation); });
    return parts;
  }

  static void reduce(const std::vector<std::vector<char>>& parts, ReduceOperation operation, DataType type,
                     int64_t count, void* to) {
    std::vector<const void*> pointers;
    for (const auto& part : parts) pointers.push_back(part.data());
    reduce_in_order(type, operation, pointers, 0, count, to);
  }

  std::shared_ptr<Post> post_;
  std::string name_;
  std::vector<int> members_;
  int rank_;
  uint64_t id_;
};

class SocketWorld final : public World {
 public:
  explicit SocketWorld(std::shared_ptr<Post> post) : post_(std::move(post)) {}

  std::unique_ptr<Communicator> communicator(int world_rank, const std::vector<int>& members,
                                             const std::string& name) override {
    const auto at = std::find(members.begin(), members.end(), world_rank);
    MPT_CHECK(at != members.end(), "rank {} is no member of group {}", world_rank, name);
    return std::make_unique<MessageCommunicator>(post_, name, members, int(at - members.begin()));
  }
  void abort(const std::string& reason) override { post_->abort(reason); }
  bool aborted() const override { return post_->aborted(); }
  std::vector<int> local_ranks() const override {
    std::vector<int> ranks(static_cast<size_t>(post_->ranks_per_process()));
    std::iota(ranks.begin(), ranks.end(), post_->process() * post_->ranks_per_process());
    return ranks;
  }

 private:
  std::shared_ptr<Post> post_;
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
    if (verdict == 0) refuse(differing);
  }

  [[noreturn]] void refuse(const std::string& who) const {
    throw UserError(Problem{"plan", fmt::format("process {} was started with another one", who),
                            "the same plan.json everywhere", "copy it to every host"});
  }

  void introduce(std::vector<Socket>& peers) {
    Socket master = Socket::connect(o_.launch.master_address, o_.launch.master_port, deadline_);
    const Socket listener = Socket::listen(master.address(), 0);
    const Hello own = make_hello(o_, listener.port(), master.address());
    master.send_all(&own, sizeof own);
    uint32_t verdict = 0;
    if (!master.receive_all(&verdict, sizeof verdict))
      throw RunError("process 0 ended while the run came together");
    if (verdict == 0) refuse(std::to_string(o_.launch.process));
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
  const int processes = options.launch.processes;
  if (options.ranks % processes != 0) {
    throw UserError(
        Problem{options.launch.launcher, fmt::format("{} processes", processes),
                fmt::format("a number that divides the plan's {} ranks", options.ranks),
                fmt::format("start {} processes, or plan for another number of devices", options.ranks)});
  }
  return std::make_unique<SocketWorld>(std::make_shared<Post>(options, Meeting(options).hold()));
}

}  // namespace mpt::runtime
