// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/messages/message_communicator.h"

#include "base/error.h"
#include "runtime/comm/mover.h"

namespace mpt::runtime {
namespace {

// Up to this size each rank gets all data and adds them itself: one exchange instead of two.
constexpr int64_t kWholeBytes = 4096;
// Larger data are reduced window by window, so that parts stay in the cache. Many windows would pay the
// latency of a slow link many times.
constexpr int64_t kWindowBytes = 4 << 20, kMostWindows = 16;

class MessageCommunicator final : public Communicator {
 public:
  // A group of one has no channel.
  MessageCommunicator(std::unique_ptr<Channel> channel, int rank, int size, Mover& mover)
      : channel_(std::move(channel)), rank_(rank), size_(size), mover_(mover) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    if (size_ == 1 || count == 0) return;
    const int64_t unit = size_of(type);
    char* const own = static_cast<char*>(data);
    if (count * unit <= kWholeBytes) {
      for_others([&](int r) { put(r, own, count * unit); });
      return reduce(own, count, type, operation, own, "all_reduce");
    }
    // Rank r reduces slice r. Its result of a window leaves with the parts of the next one.
    const int64_t windows = windows_of(count * unit);
    const auto first = [&](int r, int64_t w) {
      const int64_t begin = count * r / size_, end = count * (r + 1) / size_;
      return begin + (end - begin) * w / windows;
    };
    const auto bytes = [&](int r, int64_t w) { return (first(r, w + 1) - first(r, w)) * unit; };
    for (int64_t w = 0; w <= windows; ++w) {
      if (w > 0)
        for_others([&](int r) {
          put(r, own + first(rank_, w - 1) * unit, bytes(rank_, w - 1));
          take(r, own + first(r, w - 1) * unit, bytes(r, w - 1));
        });
      if (w == windows) return exchange("all_reduce");
      for_others([&](int r) { put(r, own + first(r, w) * unit, bytes(r, w)); });
      char* const part = own + first(rank_, w) * unit;
      reduce(part, bytes(rank_, w) / unit, type, operation, part, "all_reduce");
    }
  }

  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    const int64_t bytes = count * size_of(type);
    char* const to = static_cast<char*>(receive);
    for_others([&](int r) {
      put(r, send, bytes);
      take(r, to + r * bytes, bytes);
    });
    mover_.move(to + rank_ * bytes, send, bytes);
    exchange("all_gather");
  }

  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    const int64_t unit = size_of(type), windows = windows_of(count * unit * size_);
    const char* const from = static_cast<const char*>(send);
    if (size_ == 1) return mover_.move(receive, send, count * unit);
    for (int64_t w = 0; w < windows; ++w) {
      const int64_t begin = count * w / windows, end = count * (w + 1) / windows;
      for_others([&](int r) { put(r, from + (count * r + begin) * unit, (end - begin) * unit); });
      reduce(from + (count * rank_ + begin) * unit, end - begin, type, ReduceOperation::sum,
             static_cast<char*>(receive) + begin * unit, "reduce_scatter");
    }
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    if (rank_ == root)
      for_others([&](int r) { put(r, data, bytes); });
    else
      take(root, data, bytes);
    exchange("broadcast");
  }

  void send(const void* data, int64_t bytes, int peer) override {
    put(peer, data, bytes);
    exchange("send");
  }
  void receive(void* data, int64_t bytes, int peer) override {
    take(peer, data, bytes);
    exchange("receive");
  }
  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    if (size_ == 1) return mover_.move(received, data, bytes);
    put(to, data, bytes);
    take(from, received, bytes);
    exchange("send_receive");
  }

  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    const char* from = static_cast<const char*>(data);
    char* to = static_cast<char*>(received);
    for (int r = 0; r < size_; ++r) {
      const int64_t out = sent[size_t(r)], in = received_bytes[size_t(r)];
      if (r != rank_) put(r, from, out);
      if (r != rank_) take(r, to, in);
      if (r == rank_) mover_.move(to, from, in);
      from += out;
      to += in;
    }
    exchange("all_to_all");
  }

  void barrier() override {
    if (rank_ == 0) {
      for_others([&](int r) { take(r, nullptr, 0); });
      exchange("barrier");
      for_others([&](int r) { put(r, nullptr, 0); });
    } else {
      put(0, nullptr, 0);
      take(0, nullptr, 0);
    }
    exchange("barrier");
  }

 private:
  template <class F>
  void for_others(F&& body) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) body(r);
  }

  static int64_t windows_of(int64_t bytes) {
    return std::clamp(bytes / kWindowBytes, int64_t{1}, kMostWindows);
  }

  void put(int peer, const void* data, int64_t bytes) {
    add(sent_, peer, static_cast<const char*>(data), bytes);
  }
  void take(int peer, void* data, int64_t bytes) { add(received_, peer, static_cast<char*>(data), bytes); }
  template <class Pointer>
  static void add(std::vector<Channel::Part<Pointer>>& parts, int peer, Pointer data, int64_t bytes) {
    for (; bytes > Channel::kMostBytes; data += Channel::kMostBytes, bytes -= Channel::kMostBytes)
      parts.push_back({peer, data, Channel::kMostBytes});
    parts.push_back({peer, data, bytes});
  }
  void exchange(const char* operation) {
    if (size_ == 1)
      MPT_CHECK(sent_.empty() && received_.empty(), "{} to or from a peer of a group of one", operation);
    if (size_ > 1) channel_->exchange(sent_, received_, operation);
    sent_.clear();
    received_.clear();
  }

  // Ends the exchange with `count` elements from each other rank, and reduces them with `own`.
  void reduce(const char* own, int64_t count, DataType type, ReduceOperation operation, void* to,
              const char* name) {
    const int64_t bytes = count * size_of(type);
    if (int64_t(scratch_.size()) < bytes * size_) scratch_ = std::vector<char>(size_t(bytes * size_));
    std::vector<const void*> parts(size_t(size_), own);
    for_others([&](int r) {
      parts[size_t(r)] = scratch_.data() + r * bytes;
      take(r, scratch_.data() + r * bytes, bytes);
    });
    exchange(name);
    mover_.reduce(type, operation, parts, 0, count, to);
  }

  const std::unique_ptr<Channel> channel_;
  const int rank_, size_;
  Mover& mover_;
  std::vector<Channel::Sent> sent_;  // of the next exchange, like `received_`
  std::vector<Channel::Received> received_;
  std::vector<char> scratch_;  // parts of other ranks
};

}  // namespace

std::unique_ptr<Communicator> MessageWorld::communicator(int world_rank, const std::vector<int>& members,
                                                         const std::string& name) {
  const auto at = std::find(members.begin(), members.end(), world_rank);
  MPT_CHECK(at != members.end(), "rank {} is no member of group {}", world_rank, name);
  return std::make_unique<MessageCommunicator>(channel(world_rank, members, name), int(at - members.begin()),
                                               int(members.size()), host_mover());
}

std::unique_ptr<Communicator> make_single_communicator(Mover& mover) {
  return std::make_unique<MessageCommunicator>(nullptr, 0, 1, mover);
}

std::string describe_wait(const char* operation, const std::string& group, int rank, int peer) {
  return fmt::format("{} of group {}, rank {} (waiting for rank {})", operation, group, rank, peer);
}

}  // namespace mpt::runtime
