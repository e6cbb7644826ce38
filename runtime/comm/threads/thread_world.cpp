// SPDX-License-Identifier: Apache-2.0
#include "runtime/comm/threads/thread_world.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>
#include <map>
#include <mutex>

#include "base/error.h"

namespace mpt::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using Word = std::atomic<uint32_t>;

// Ranks may exceed cores. Then a long spin takes the time slice from the thread that it waits for.
constexpr int kSpins = 200;
// Bytes of a collective over its whole group. Up to this size the last rank to arrive does all the work. So
// each rank sleeps and wakes once, and not two or three times.
constexpr int64_t kSmall = 1 << 17;
constexpr long kSliceNanoseconds = 50'000'000;  // how soon an abort is noticed

void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

void sleep_while_equal(Word& word, uint32_t value) {
  const timespec slice{0, kSliceNanoseconds};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, &slice, nullptr, 0);
}

void wake_all(Word& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

struct ThreadWorld::State {
  explicit State(std::chrono::milliseconds limit) : timeout(limit) {}

  [[noreturn]] void fail(const std::string& what) {
    const std::lock_guard lock(mutex);
    throw CommunicationError(reason.empty() ? what : what + ": " + reason);
  }

  // Waits until `word` differs from `value`; `describe` makes the message for a timeout.
  template <class Describe>
  uint32_t wait_change(Word& word, uint32_t value, Describe&& describe) {
    for (int i = 0; i < kSpins; ++i) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != value) return now;
      pause_processor();
    }
    const auto deadline = Clock::now() + timeout;
    while (true) {
      const uint32_t now = word.load(std::memory_order_acquire);
      if (now != value) return now;
      if (is_aborted.load(std::memory_order_acquire)) fail("stopped while in " + describe());
      if (Clock::now() > deadline)
        fail(fmt::format("timeout after {} s in {}", std::chrono::duration<double>(timeout).count(),
                         describe()));
      sleep_while_equal(word, value);
    }
  }

  std::chrono::milliseconds timeout;
  std::atomic<bool> is_aborted{false};
  std::mutex mutex;
  std::string reason;
  std::map<std::pair<std::string, std::vector<int>>, std::shared_ptr<struct Group>> groups;
};

// Shared by the members of one group.
struct Group {
  Group(std::string group_name, std::vector<int> world_ranks)
      : name(std::move(group_name)),
        members(std::move(world_ranks)),
        pointers(members.size()),
        results(members.size()),
        arrivals(members.size()),
        boxes(members.size() * members.size()) {}

  struct alignas(64) Arrival {
    std::atomic<uint32_t> epoch{0};
  };
  // A message from one rank to another: 0 empty, 1 posted, 2 taken.
  struct alignas(64) Box {
    Word state{0};
    const void* data = nullptr;
    int64_t bytes = 0;
  };

  std::string name;
  std::vector<int> members;
  std::vector<const void*> pointers;
  std::vector<void*> results;  // of small collectives only
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) Word epoch{0};
  std::vector<Arrival> arrivals;
  std::vector<Box> boxes;
};

namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<ThreadWorld::State> world, std::shared_ptr<Group> group, int rank,
                     Mover& mover)
      : world_(std::move(world)), group_(std::move(group)), rank_(rank), mover_(mover) {}

  int rank() const override { return rank_; }
  int size() const override { return int(group_->members.size()); }

  void all_reduce(void* data, int64_t count, DataType type, ReduceOperation operation) override {
    if (size() == 1 || count == 0) return;
    const int64_t unit = size_of(type);
    if (is_small(count * unit))
      return together(data, data, "all_reduce", [&](const Group& g) {
        mover_.reduce(type, operation, g.pointers, 0, count, g.results[0]);
        for (size_t r = 1; r < g.results.size(); ++r) copy_bytes(g.results[r], g.results[0], count * unit);
      });
    publish(data, "all_reduce");
    // No other rank reads this rank's slice of its own buffer before the second barrier, so the result goes
    // there.
    const auto [begin, end] = slice(count, rank_);
    mover_.reduce(type, operation, group_->pointers, begin, end, static_cast<char*>(data) + begin * unit);
    leave("all_reduce");
    for (int r = 0; r < size(); ++r) {
      if (r == rank_) continue;
      const auto [from, to] = slice(count, r);
      copy_bytes(static_cast<char*>(data) + from * unit,
                 static_cast<const char*>(group_->pointers[size_t(r)]) + from * unit, (to - from) * unit);
    }
    leave("all_reduce");
  }

  void all_gather(const void* send, void* receive, int64_t count, DataType type) override {
    const int64_t bytes = count * size_of(type);
    exchange(send, receive, bytes * size(), "all_gather", [&](int, void* to) {
      for (int r = 0; r < size(); ++r)
        copy_bytes(static_cast<char*>(to) + r * bytes, group_->pointers[size_t(r)], bytes);
    });
  }

  void reduce_scatter(const void* send, void* receive, int64_t count, DataType type) override {
    exchange(send, receive, count * size_of(type) * size(), "reduce_scatter", [&](int rank, void* to) {
      mover_.reduce(type, ReduceOperation::sum, group_->pointers, rank * count, (rank + 1) * count, to);
    });
  }

  void broadcast(void* data, int64_t bytes, int root) override {
    exchange(data, data, bytes, "broadcast", [&](int rank, void* to) {
      if (rank != root) copy_bytes(to, group_->pointers[size_t(root)], bytes);
    });
  }

  void send(const void* data, int64_t bytes, int peer) override {
    post(data, bytes, peer);
    await_taken(peer);
  }

  void send_receive(const void* data, int to, void* received, int from, int64_t bytes) override {
    if (size() == 1) return copy_bytes(received, data, bytes);
    post(data, bytes, to);
    receive(received, bytes, from);
    await_taken(to);
  }

  void all_to_all(const void* data, std::span<const int64_t> sent, void* received,
                  std::span<const int64_t> received_bytes) override {
    const Parts own{data, sent};
    publish(&own, "all_to_all");
    char* to = static_cast<char*>(received);
    for (int r = 0; r < size(); ++r) {
      const auto& parts = *static_cast<const Parts*>(group_->pointers[size_t(r)]);
      const int64_t bytes = received_bytes[size_t(r)];
      MPT_CHECK(parts.bytes[size_t(rank_)] == bytes,
                "rank {} expected {} bytes from rank {} in group {}, which sends {}", rank_, bytes, r,
                group_->name, parts.bytes[size_t(rank_)]);
      const char* from = static_cast<const char*>(parts.data);
      for (int before = 0; before < rank_; ++before) from += parts.bytes[size_t(before)];
      copy_bytes(to, from, bytes);
      to += bytes;
    }
    leave("all_to_all");
  }

  void receive(void* data, int64_t bytes, int peer) override {
    Group::Box& box = box_of(peer, rank_);
    const auto describe = [&] { return describe_operation("receive from", peer); };
    while (true) {
      const uint32_t state = box.state.load(std::memory_order_acquire);
      if (state == 1) break;
      world_->wait_change(box.state, state,
                          describe);  // empty, or not yet cleared by the sender
    }
    MPT_CHECK(box.bytes == bytes, "rank {} expected {} bytes from rank {} in group {}, which sends {}", rank_,
              bytes, peer, group_->name, box.bytes);
    copy_bytes(data, box.data, bytes);
    mover_.finish();
    box.state.store(2, std::memory_order_release);
    wake_all(box.state);
  }

  void barrier() override { barrier_in("barrier"); }

 private:
  struct Parts {
    const void* data;
    std::span<const int64_t> bytes;
  };

  void post(const void* data, int64_t bytes, int peer) {
    mover_.finish();
    Group::Box& box = box_of(rank_, peer);
    box.data = data;
    box.bytes = bytes;
    box.state.store(1, std::memory_order_release);
    wake_all(box.state);
  }

  void await_taken(int peer) {
    Group::Box& box = box_of(rank_, peer);
    world_->wait_change(box.state, 1, [&] { return describe_operation("send to", peer); });
    box.state.store(0, std::memory_order_release);
  }

  void copy_bytes(void* to, const void* from, int64_t bytes) { mover_.move(to, from, bytes); }

  std::pair<int64_t, int64_t> slice(int64_t count, int rank) const {
    return {count * rank / size(), count * (rank + 1) / size()};
  }

  Group::Box& box_of(int from, int to) { return group_->boxes[size_t(from) * size_t(size()) + size_t(to)]; }

  // `bytes` are those of one rank. Only the devices' own movers handle device buffers.
  bool is_small(int64_t bytes) const { return bytes * size() <= kSmall && &mover_ == &host_mover(); }
  // For small collectives: the last rank to arrive does `work` for all ranks, then wakes the others.
  template <class Work>
  void together(const void* sent, void* received, const char* operation, Work&& work) {
    group_->pointers[size_t(rank_)] = sent;
    group_->results[size_t(rank_)] = received;
    barrier_in(operation, work);
  }
  // A collective in which `part` computes one rank's result from all ranks' data. For small data the last
  // rank does this for all; else each rank does its own.
  template <class Part>
  void exchange(const void* sent, void* received, int64_t bytes, const char* operation, Part&& part) {
    if (is_small(bytes))
      return together(sent, received, operation, [&](const Group& g) {
        for (int r = 0; r < size(); ++r) part(r, g.results[size_t(r)]);
      });
    publish(sent, operation);
    part(rank_, received);
    leave(operation);
  }

  void publish(const void* data, const char* operation) {
    mover_.finish();
    group_->pointers[size_t(rank_)] = data;
    barrier_in(operation);
  }
  // After this, other ranks may overwrite the data that this rank has read.
  void leave(const char* operation) {
    mover_.finish();
    barrier_in(operation);
  }

  void barrier_in(const char* operation) {
    barrier_in(operation, [](const Group&) {});
  }
  template <class Work>
  void barrier_in(const char* operation, Work&& last) {
    Group& g = *group_;
    if (size() == 1) return last(g);
    const uint32_t epoch = g.epoch.load(std::memory_order_acquire);
    g.arrivals[size_t(rank_)].epoch.store(epoch + 1, std::memory_order_relaxed);
    if (g.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == uint32_t(size())) {
      last(g);
      g.arrived.store(0, std::memory_order_relaxed);
      g.epoch.store(epoch + 1, std::memory_order_release);
      wake_all(g.epoch);
      return;
    }
    world_->wait_change(g.epoch, epoch, [&] { return describe_missing(operation, epoch + 1); });
  }

  std::string describe_missing(const char* operation, uint32_t epoch) const {
    std::string missing;
    for (int r = 0; r < size(); ++r) {
      if (group_->arrivals[size_t(r)].epoch.load(std::memory_order_relaxed) == epoch) continue;
      missing += fmt::format("{}{}", missing.empty() ? "" : ", ", group_->members[size_t(r)]);
    }
    return fmt::format("{} of group {}, rank {} (not arrived: rank {})", operation, group_->name,
                       world_rank(rank_), missing);
  }

  std::string describe_operation(const char* operation, int peer) const {
    return fmt::format("{} rank {}, group {}, rank {}", operation, world_rank(peer), group_->name,
                       world_rank(rank_));
  }

  int world_rank(int rank) const { return group_->members[size_t(rank)]; }

  std::shared_ptr<ThreadWorld::State> world_;
  std::shared_ptr<Group> group_;
  int rank_;
  Mover& mover_;
};

}  // namespace

ThreadWorld::ThreadWorld(std::chrono::milliseconds timeout, int ranks, std::vector<Mover*> movers)
    : ranks_(ranks), movers_(std::move(movers)), state_(std::make_shared<State>(timeout)) {}
ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::communicator(int world_rank, const std::vector<int>& members,
                                                        const std::string& name) {
  const auto at = std::find(members.begin(), members.end(), world_rank);
  MPT_CHECK(at != members.end(), "rank {} is no member of group {}", world_rank, name);
  const std::lock_guard lock(state_->mutex);
  auto& group = state_->groups[{name, members}];
  if (!group) group = std::make_shared<Group>(name, members);
  Mover& mover = movers_.empty() ? host_mover() : *movers_.at(size_t(world_rank));
  return std::make_unique<ThreadCommunicator>(state_, group, int(at - members.begin()), mover);
}

void ThreadWorld::abort(const std::string& reason) {
  const std::lock_guard lock(state_->mutex);
  if (state_->reason.empty()) state_->reason = reason;
  state_->is_aborted.store(true, std::memory_order_release);
}

std::vector<int> ThreadWorld::local_ranks() const { return ranks_from(0, ranks_); }

bool ThreadWorld::aborted() const { return state_->is_aborted.load(std::memory_order_acquire); }

}  // namespace mpt::runtime
