// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/messages/message_world.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <numeric>

#include "base/digest.h"
#include "base/error.h"
#include "runtime/comm/reduction.h"

namespace mpt::runtime {
namespace {

// Groups of a process's last frame: abort the run, with the reason; or a regular end.
constexpr uint64_t kAbort = 0, kGoodBye = 1;

uint64_t group_id(const std::string& name, const std::vector<int>& members) {
  Digest digest;
  digest.add(name);
  for (const int member : members) digest.add(int64_t{member});
  return std::max<uint64_t>(Frame::kFirstGroup, std::stoull(digest.text(), nullptr, 16));
}

// Messages that have arrived and were not received yet.
class Post {
 public:
  Post(std::unique_ptr<Wire> wire, int ranks, std::chrono::milliseconds timeout)
      : wire_(std::move(wire)), ranks_per_process_(ranks / wire_->processes()), timeout_(timeout) {
    wire_->start(
        [this](const Frame& frame, std::vector<char> message) { arrived(frame, std::move(message)); },
        [this](int process) { lost(process); });
  }

  ~Post() {
    tell_others({kGoodBye, 0, 0, 0}, nullptr);
    wire_->close(is_aborted_);
  }

  void send(uint64_t group, int from, int to, const void* data, int64_t bytes) {
    const int process = to / ranks_per_process_;
    if (process == wire_->process()) {
      const auto* at = static_cast<const char*>(data);
      return deliver({group, from, to}, {at, at + bytes});
    }
    try {
      wire_->send(process, {group, from, to, bytes}, data);
    } catch (const RunError& error) {
      abort(fmt::format("rank {} cannot be reached: {}", to, error.what()));
      throw CommunicationError(reason());
    }
  }

  template <class Describe>
  void receive(uint64_t group, int from, int to, void* data, int64_t bytes, Describe&& describe) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{group, from, to}];
    const bool arrived = changed_.wait_for(lock, timeout_, [&] { return !box.empty() || is_aborted_; });
    if (!arrived) {
      throw CommunicationError(fmt::format("timeout after {} s in {}",
                                           std::chrono::duration<double>(timeout_).count(), describe()));
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
      reason_ = reason.substr(0, size_t(Frame::kMostLastBytes));
      is_aborted_ = true;
    }
    changed_.notify_all();
    tell_others({kAbort, 0, 0, int64_t(reason_.size())}, reason_.data());
  }

  bool aborted() const { return is_aborted_; }
  std::string reason() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  int ranks_per_process() const { return ranks_per_process_; }
  int process() const { return wire_->process(); }

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

  void tell_others(const Frame& frame, const void* data) {
    for (int p = 0; p < wire_->processes(); ++p) {
      if (p == wire_->process()) continue;
      try {
        wire_->send(p, frame, data);
      } catch (const RunError&) {  // the process is gone already
      }
    }
  }

  void arrived(const Frame& frame, std::vector<char> message) {
    if (frame.group == kAbort) {
      // Another process wrote the text, and it is printed to a terminal.
      std::replace_if(
          message.begin(), message.end(), [](unsigned char c) { return c < ' ' || c == 127; }, '?');
      abort({message.begin(), message.end()});
    }
    if (!frame.is_last()) deliver({frame.group, frame.from, frame.to}, std::move(message));
  }

  void lost(int process) {
    const int first = process * ranks_per_process_, last = first + ranks_per_process_ - 1;
    abort(first == last
              ? fmt::format("rank {} died: its connection is gone", first)
              : fmt::format("the process of ranks {} to {} died: its connection is gone", first, last));
  }

  const std::unique_ptr<Wire> wire_;
  const int ranks_per_process_;
  const std::chrono::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Address, std::deque<std::vector<char>>> boxes_;
  std::atomic<bool> is_aborted_{false};
  std::string reason_;
};

// Collectives made of messages. Small data goes whole from each rank to each other one, large data in slices.
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
    const int64_t begin = slice(rank_).first, end = slice(rank_).second;
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

class MessageWorld final : public World {
 public:
  explicit MessageWorld(std::shared_ptr<Post> post) : post_(std::move(post)) {}

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

}  // namespace

void check_processes(const std::string& launcher, int processes, int ranks) {
  if (ranks % processes == 0) return;
  throw UserError(Problem{launcher, fmt::format("{} processes", processes),
                          fmt::format("a number that divides the plan's {} ranks", ranks),
                          fmt::format("start {} processes, or plan for another number of devices", ranks)});
}

void throw_other_plan(const std::string& processes) {
  throw UserError(Problem{"plan", fmt::format("process {} was started with another one", processes),
                          "the same plan.json everywhere", "copy it to every host"});
}

std::unique_ptr<World> make_message_world(std::unique_ptr<Wire> wire, int ranks,
                                          std::chrono::milliseconds timeout) {
  return std::make_unique<MessageWorld>(std::make_shared<Post>(std::move(wire), ranks, timeout));
}

}  // namespace mpt::runtime
