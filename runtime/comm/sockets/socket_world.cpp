// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/sockets/socket_world.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "base/digest.h"
#include "base/error.h"

namespace mpt::runtime {
namespace {

uint64_t group_id(const std::string& name, const std::vector<int>& members) {
  Digest digest;
  digest.add(name);
  for (const int member : members) digest.add(int64_t{member});
  return std::max<uint64_t>(Frame::kFirstGroup, std::stoull(digest.text(), nullptr, 16));
}

// Where messages of one rank to another in a group are taken.
struct Address {
  uint64_t group;
  int from, to;
  auto operator<=>(const Address&) const = default;
};

// A message that a rank waits for. Its bytes go straight to `data` if it waits before they come.
struct Receipt {
  Address at;
  char* data;
  int64_t bytes;
  enum { expected, arriving, done } state = expected;
};

struct Box {
  std::deque<std::vector<char>> messages;  // arrived before they were expected
  std::deque<Receipt*> receipts;
  std::condition_variable changed;
};

// A thread for each connection reads what comes.
class SocketWorld final : public MessageWorld {
 public:
  SocketWorld(const SocketWorldOptions& options, std::vector<Socket> peers)
      : own_(options.launch.process),
        ranks_per_process_(options.ranks / options.launch.processes),
        timeout_(options.timeout),
        peers_(std::move(peers)),
        locks_(peers_.size()),
        is_cut_(peers_.size()) {
    for (size_t p = 0; p < peers_.size(); ++p) {
      if (!peers_[p]) continue;
      peers_[p].set_send_timeout(timeout_);
      readers_.emplace_back([this, p] {
        if (!read(peers_[p]) && !is_cut_[p]) lost(int(p));
      });
    }
  }

  // Waits for the last frame of every other process, unless the run was aborted: some may never come.
  ~SocketWorld() override {
    tell_others(Frame::kGoodBye, "");
    for (const Socket& peer : peers_)
      if (peer && is_aborted_) peer.shut_down();
    for (std::thread& reader : readers_) reader.join();
  }
  SocketWorld(const SocketWorld&) = delete;

  std::unique_ptr<Channel> channel(int world_rank, const std::vector<int>& members,
                                   const std::string& name) override;

  void abort(const std::string& reason) override {
    {
      const std::lock_guard lock(mutex_);
      if (is_aborted_) return;
      reason_ = reason.substr(0, size_t(Frame::kMostLastBytes));
      is_aborted_ = true;
      for (auto& [address, box] : boxes_) box.changed.notify_all();
    }
    tell_others(Frame::kAbort, reason_);
  }
  bool aborted() const override { return is_aborted_; }
  std::string reason() const override {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  std::vector<int> local_ranks() const override {
    return ranks_from(own_ * ranks_per_process_, ranks_per_process_);
  }

  void send(const Address& at, const char* data, int64_t bytes) {
    const int process = at.to / ranks_per_process_;
    if (process == own_) return deliver(at, {data, data + bytes});
    try {
      write(size_t(process), {at.group, at.from, at.to, bytes}, data);
    } catch (const RunError& error) {
      abort(fmt::format("rank {} cannot be reached: {}", at.to, error.what()));
      throw CommunicationError(reason());
    }
  }

  void expect(Receipt& receipt) {
    std::unique_lock lock(mutex_);
    Box& box = boxes_[receipt.at];
    if (box.messages.empty()) return box.receipts.push_back(&receipt);
    const std::vector<char> message = std::move(box.messages.front());
    box.messages.pop_front();
    lock.unlock();
    fill(receipt, message);
  }

  template <class Describe>
  void await(const Receipt& receipt, Describe&& describe) {
    std::unique_lock lock(mutex_);
    const bool ended = boxes_[receipt.at].changed.wait_for(
        lock, timeout_, [&] { return receipt.state == Receipt::done || is_aborted_; });
    if (!ended)
      throw CommunicationError(fmt::format("timeout after {} s in {}",
                                           std::chrono::duration<double>(timeout_).count(), describe()));
    if (receipt.state != Receipt::done)
      throw CommunicationError(fmt::format("stopped while in {}: {}", describe(), reason_));
  }

  /// Returns when nobody writes to the receipt's data any more.
  void withdraw(const Receipt& receipt) {
    std::unique_lock lock(mutex_);
    Box& box = boxes_[receipt.at];
    std::erase(box.receipts, &receipt);
    // Whoever lives and sends ends its message first: it could not tell its end to others before.
    const auto is_over = [&] { return receipt.state != Receipt::arriving; };
    if (box.changed.wait_for(lock, std::chrono::seconds(1), is_over)) return;
    const auto process = size_t(receipt.at.from / ranks_per_process_);
    is_cut_[process] = true;
    peers_[process].stop_receiving();
    box.changed.wait(lock, is_over);
  }

 private:
  void write(size_t process, const Frame& frame, const char* data) {
    const std::lock_guard lock(locks_[process]);
    peers_[process].send_all(&frame, sizeof frame, {}, frame.bytes > 0);
    peers_[process].send_all(data, size_t(frame.bytes));
  }

  void tell_others(uint64_t kind, const std::string& text) {
    for (size_t p = 0; p < peers_.size(); ++p) {
      try {
        if (peers_[p]) write(p, {kind, 0, 0, int64_t(text.size())}, text.data());
      } catch (const std::exception&) {  // the process is gone already
      }
    }
  }

  // The receiver that waits for this message.
  Receipt* claim(const Address& at, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    auto& receipts = boxes_[at].receipts;
    if (receipts.empty() || receipts.front()->bytes != bytes) return nullptr;
    Receipt* const receipt = receipts.front();
    receipts.pop_front();
    receipt->state = Receipt::arriving;
    return receipt;
  }
  // If the connection ended in the middle, an abort ends the receiver's wait.
  void finish(Receipt& receipt, bool whole) {
    const std::lock_guard lock(mutex_);
    receipt.state = whole ? Receipt::done : Receipt::expected;
    boxes_[receipt.at].changed.notify_all();
  }

  void deliver(const Address& at, std::vector<char> message) {
    const std::lock_guard lock(mutex_);
    Box& box = boxes_[at];
    if (box.receipts.empty()) return box.messages.push_back(std::move(message));
    fill(*box.receipts.front(), message);
    box.receipts.pop_front();
    box.changed.notify_all();
  }
  static void fill(Receipt& receipt, const std::vector<char>& message) {
    MPT_CHECK(int64_t(message.size()) == receipt.bytes, "{} bytes from rank {}, expected {}", message.size(),
              receipt.at.from, receipt.bytes);
    if (!message.empty()) std::memcpy(receipt.data, message.data(), message.size());
    receipt.state = Receipt::done;
  }

  // Reads until the last frame; false if the connection ended before it.
  bool read(const Socket& peer) {
    try {
      Frame frame{};
      do {
        if (!peer.receive_all(&frame, sizeof frame) || !frame.is_sound() || !read_message(peer, frame))
          return false;
      } while (!frame.is_last());
      return true;
    } catch (const std::exception&) {  // a lost connection, or too little memory
      return false;
    }
  }

  bool read_message(const Socket& peer, const Frame& frame) {
    const Address at{frame.group, frame.from, frame.to};
    const auto bytes = size_t(frame.bytes);
    if (Receipt* const receipt = frame.is_last() ? nullptr : claim(at, frame.bytes)) {
      const bool whole = receive(peer, receipt->data, bytes);
      finish(*receipt, whole);
      return whole;
    }
    // Memory grows with the bytes that arrive, so a false length allocates nothing.
    constexpr size_t kFirst = size_t{64} << 20;
    std::vector<char> message;
    if (bytes <= kFirst) message.reserve(bytes);
    while (message.size() < bytes) {
      const size_t got = message.size();
      message.resize(std::min(bytes, std::max(kFirst, 2 * got)));
      if (!receive(peer, message.data() + got, message.size() - got)) return false;
    }
    if (!frame.is_last()) {
      deliver(at, std::move(message));
    } else if (frame.group == Frame::kAbort) {
      // Another process wrote the text, and it is printed to a terminal.
      std::replace_if(
          message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
      abort({message.begin(), message.end()});
    }
    return true;
  }
  static bool receive(const Socket& peer, char* data, size_t bytes) {
    try {
      return peer.receive_all(data, bytes);
    } catch (const RunError&) {
      return false;
    }
  }

  void lost(int process) {
    const int first = process * ranks_per_process_, last = first + ranks_per_process_ - 1;
    abort(first == last
              ? fmt::format("rank {} died: its connection is gone", first)
              : fmt::format("the process of ranks {} to {} died: its connection is gone", first, last));
  }

  const int own_, ranks_per_process_;
  const std::chrono::milliseconds timeout_;
  std::vector<Socket> peers_;  // by process; this one's is empty
  std::vector<std::mutex> locks_;
  std::vector<std::atomic<bool>> is_cut_;  // by process: its message was given up in the middle
  mutable std::mutex mutex_;
  std::map<Address, Box> boxes_;
  std::atomic<bool> is_aborted_{false};
  std::string reason_;
  std::vector<std::thread> readers_;
};

class SocketChannel final : public Channel {
 public:
  SocketChannel(SocketWorld& world, std::string name, std::vector<int> members, int rank)
      : world_(world), name_(std::move(name)), members_(std::move(members)), rank_(rank) {}

  void exchange(std::span<const Sent> sent, std::span<const Received> received,
                const char* operation) override {
    std::vector<Receipt> receipts;
    receipts.reserve(received.size());  // the world knows their addresses
    for (const Received& part : received)
      receipts.push_back({{id_, members_[size_t(part.peer)], rank_}, part.data, part.bytes});
    for (Receipt& receipt : receipts) world_.expect(receipt);
    try {
      for (const Sent& part : sent)
        world_.send({id_, rank_, members_[size_t(part.peer)]}, part.data, part.bytes);
      for (const Receipt& receipt : receipts)
        world_.await(receipt, [&] { return describe_wait(operation, name_, rank_, receipt.at.from); });
    } catch (...) {
      for (const Receipt& receipt : receipts) world_.withdraw(receipt);
      throw;
    }
  }

 private:
  SocketWorld& world_;
  const std::string name_;
  const std::vector<int> members_;
  const int rank_;  // of the run
  const uint64_t id_ = group_id(name_, members_);
};

std::unique_ptr<Channel> SocketWorld::channel(int world_rank, const std::vector<int>& members,
                                              const std::string& name) {
  return std::make_unique<SocketChannel>(*this, name, members, world_rank);
}

}  // namespace

std::unique_ptr<World> make_socket_world(const SocketWorldOptions& options) {
  return std::make_unique<SocketWorld>(options, meet_processes(options));
}

}  // namespace mpt::runtime
