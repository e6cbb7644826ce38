// SPDX-License-Identifier: Apache-2.0

// The MPI wire. One thread makes all calls of MPI, so that any level of its thread support will do; others
// hand their messages to it and wait until they are sent.

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <future>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "runtime/comm/mpi/mpi_module.h"

namespace mpt::runtime {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts in int; a message goes in pieces of this size, which arrive in order.
constexpr int64_t kPieceBytes = 1 << 20;
constexpr int kTag = 7;
constexpr int kDigestBytes = 16;

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, size_t(length)};
}

class MpiWire final : public Wire {
 public:
  MpiWire(const char* plan_digest, std::chrono::milliseconds timeout) : timeout_(timeout) {
    std::promise<void> joined;
    thread_ = std::thread([this, plan_digest, &joined] { run(plan_digest, joined); });
    joined.get_future().wait();
  }
  ~MpiWire() override {
    if (thread_.joinable()) close(true);
  }

  const std::string& failure() const { return failure_; }
  int other_plan() const { return other_plan_; }
  int process() const override { return process_; }
  int processes() const override { return processes_; }

  void start(Arrived arrived, Lost lost) override {
    const std::lock_guard lock(mutex_);
    arrived_ = std::move(arrived);
    lost_ = std::move(lost);
    changed_.notify_all();
  }

  void send(int process, const Frame& frame, const void* data) override {
    const auto message = std::make_shared<Outgoing>();
    message->process = process;
    message->bytes.resize(sizeof frame + size_t(frame.bytes));
    std::memcpy(message->bytes.data(), &frame, sizeof frame);
    if (frame.bytes > 0) std::memcpy(message->bytes.data() + sizeof frame, data, size_t(frame.bytes));
    std::unique_lock lock(mutex_);
    if (ended_) throw RunError("the MPI thread has ended");
    queue_.push_back(message);
    changed_.notify_all();
    if (!sent_.wait_for(lock, timeout_, [&] { return message->done || ended_; }))
      throw RunError(
          fmt::format("it took no message for {} s", std::chrono::duration<double>(timeout_).count()));
    if (!message->done) throw RunError("the MPI thread has ended");
    if (!message->error.empty()) throw RunError(message->error);
  }

  void close(bool cut) override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      cut_ = cut;
      changed_.notify_all();
    }
    thread_.join();
    messengers_.clear();
  }

 private:
  // Its own copy: MPI may still read it after the sender gave up.
  struct Outgoing {
    int process = 0;
    std::vector<char> bytes;  // the frame, and what it announces
    std::vector<MPI_Request> requests;
    bool done = false;
    std::string error;
  };
  // What one process is in the middle of sending.
  struct Incoming {
    Frame frame{};
    std::vector<char> message;
    int64_t missing = 0;
    bool ended = false;
  };

  void run(const char* plan_digest, std::promise<void>& joined) {
    const bool usable = join(plan_digest);
    joined.set_value();
    if (!usable) return;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return arrived_ || closing_; });
    }
    pump();
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      sent_.notify_all();
    }
    // Finalising waits for all, and after a failure not all are there: mpirun ends who is left.
    if (!cut_) MPI_Finalize();
  }

  bool join(const char* plan_digest) {
    int initialized = 0, level = 0;
    if (MPI_Initialized(&initialized) != MPI_SUCCESS || initialized != 0 ||
        MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level) != MPI_SUCCESS) {
      failure_ = "it cannot be initialised";
      return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &process_);
    MPI_Comm_size(MPI_COMM_WORLD, &processes_);
    incoming_.resize(size_t(processes_));
    char own[kDigestBytes] = {};
    std::string_view(plan_digest).copy(own, sizeof own);
    std::vector<char> all(size_t(processes_) * kDigestBytes);
    if (const int code =
            MPI_Allgather(own, kDigestBytes, MPI_BYTE, all.data(), kDigestBytes, MPI_BYTE, MPI_COMM_WORLD);
        code != MPI_SUCCESS) {
      failure_ = text_of(code);
      return false;
    }
    for (int p = 0; p < processes_; ++p) {
      if (std::memcmp(all.data(), all.data() + ptrdiff_t(p) * kDigestBytes, kDigestBytes) != 0)
        other_plan_ = p;
    }
    if (other_plan_ < 0) return true;
    MPI_Finalize();
    return false;
  }

  void pump() {
    constexpr auto kLinger = std::chrono::seconds(2);  // of a cut wire, for its last words
    auto nap = std::chrono::microseconds(0);
    Clock::time_point cut_at{};
    while (true) {
      bool moved = take_queue();
      moved |= receive();
      moved |= finish_sends();
      std::unique_lock lock(mutex_);
      if (closing_ && queue_.empty() && (cut_ || sending_.empty())) {
        if (cut_at == Clock::time_point{}) cut_at = Clock::now();
        const bool all_ended = std::all_of(incoming_.begin(), incoming_.end(),
                                           [&](const Incoming& i) { return i.ended || is_own(i); });
        if (all_ended || (cut_ && Clock::now() - cut_at > kLinger)) return;
      }
      // Busy while something moves, then ever longer naps: ranks share the cores with this thread.
      constexpr auto kLongestNap = std::chrono::microseconds(200);
      nap = moved ? std::chrono::microseconds(0) : std::min(nap + std::chrono::microseconds(5), kLongestNap);
      if (!moved && queue_.empty()) changed_.wait_for(lock, nap);
    }
  }

  bool is_own(const Incoming& i) const { return &i == &incoming_[size_t(process_)]; }

  bool take_queue() {
    std::deque<std::shared_ptr<Outgoing>> taken;
    {
      const std::lock_guard lock(mutex_);
      taken.swap(queue_);
    }
    for (const auto& message : taken) {
      hand_over(*message, 0, sizeof(Frame));
      const auto all = int64_t(message->bytes.size());
      for (int64_t at = sizeof(Frame); at < all && message->error.empty(); at += kPieceBytes)
        hand_over(*message, at, std::min(kPieceBytes, all - at));
      sending_.push_back(message);
    }
    return !taken.empty();
  }

  static void hand_over(Outgoing& message, int64_t at, int64_t bytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(message.bytes.data() + at, int(bytes), MPI_BYTE, message.process, kTag,
                               MPI_COMM_WORLD, &request);
    if (code != MPI_SUCCESS) {
      message.error = text_of(code);
    } else {
      message.requests.push_back(request);
    }
  }

  bool finish_sends() {
    const auto is_sent = [&](const std::shared_ptr<Outgoing>& message) {
      int done = 0;
      const int code =
          MPI_Testall(int(message->requests.size()), message->requests.data(), &done, MPI_STATUSES_IGNORE);
      if (code != MPI_SUCCESS) message->error = text_of(code);
      if (done == 0 && code == MPI_SUCCESS) return false;
      const std::lock_guard lock(mutex_);
      message->done = true;
      sent_.notify_all();
      return true;
    };
    return std::erase_if(sending_, is_sent) > 0;
  }

  bool receive() {
    int found = 0;
    MPI_Message message;
    MPI_Status status;
    if (MPI_Improbe(MPI_ANY_SOURCE, kTag, MPI_COMM_WORLD, &found, &message, &status) != MPI_SUCCESS ||
        found == 0)
      return false;
    int bytes = 0;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    Incoming& incoming = incoming_[size_t(status.MPI_SOURCE)];
    if (incoming.missing > 0 && bytes <= incoming.missing) {
      char* const to = incoming.message.data() + (incoming.frame.bytes - incoming.missing);
      MPI_Mrecv(to, bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      incoming.missing -= bytes;
    } else {
      // Whatever comes is taken out of the way; a head of another size is no head.
      std::vector<char> head(static_cast<size_t>(std::max(bytes, int(sizeof(Frame)))));
      MPI_Mrecv(head.data(), bytes, MPI_BYTE, &message, MPI_STATUS_IGNORE);
      std::memcpy(&incoming.frame, head.data(), sizeof(Frame));
      if (incoming.missing > 0 || bytes != int(sizeof(Frame)) || !incoming.frame.is_sound()) {
        incoming.ended = true;
        lost_in_another_thread(status.MPI_SOURCE);
        return true;
      }
      incoming.message.assign(size_t(incoming.frame.bytes), '\0');
      incoming.missing = incoming.frame.bytes;
    }
    if (incoming.missing == 0) deliver(incoming);
    return true;
  }

  // Who hears that the run is to end tells the others, which waits for this thread.
  void deliver(Incoming& incoming) {
    if (!incoming.frame.is_last()) return arrived_(incoming.frame, std::move(incoming.message));
    incoming.ended = true;
    messengers_.emplace_back(
        [this, frame = incoming.frame, message = incoming.message] { arrived_(frame, message); });
  }
  void lost_in_another_thread(int process) {
    messengers_.emplace_back([this, process] { lost_(process); });
  }

  const std::chrono::milliseconds timeout_;
  int process_ = 0, processes_ = 1, other_plan_ = -1;
  std::string failure_;
  Arrived arrived_;
  Lost lost_;
  std::mutex mutex_;
  std::condition_variable changed_, sent_;
  std::deque<std::shared_ptr<Outgoing>> queue_;
  bool closing_ = false, cut_ = false, ended_ = false;
  std::vector<Incoming> incoming_;  // by process; of the MPI thread, like what follows
  std::list<std::shared_ptr<Outgoing>> sending_;
  std::list<std::jthread> messengers_;
  std::thread thread_;
};

}  // namespace
}  // namespace mpt::runtime

extern "C" __attribute__((visibility("default"))) mpt::runtime::Wire* mpt_make_mpi_wire(
    int version, const char* plan_digest, std::chrono::milliseconds timeout, int* other_plan,
    std::string* reason) {
  if (version != mpt::runtime::kMpiModuleVersion) {
    *reason = "the module is of another version";
    return nullptr;
  }
  auto wire = std::make_unique<mpt::runtime::MpiWire>(plan_digest, timeout);
  *other_plan = wire->other_plan();
  *reason = wire->failure();
  if (wire->other_plan() >= 0 || !wire->failure().empty()) return nullptr;
  return wire.release();
}
