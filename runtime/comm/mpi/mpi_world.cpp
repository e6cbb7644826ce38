// SPDX-License-Identifier: Apache-2.0

// Large messages go over MPI, which moves more bytes in a second. Small ones go over sockets: waits on MPI
// poll, and polls that leave the cores to others are later than a wake-up by the system. No call waits inside
// MPI, so that an abort or the timeout ends every wait. After a failure nobody calls MPI again: what has not
// arrived would go to memory that is gone.

#include <mpi.h>
#include <sys/prctl.h>

#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "runtime/comm/messages/message_communicator.h"
#include "runtime/comm/mpi/mpi_module.h"

namespace mpt::runtime {
namespace {

constexpr int64_t kMostOverSockets = 1 << 17;
// A nap between two polls takes half of the wait so far.
constexpr double kLeastNap_s = 10e-6, kLongestNap_s = 200e-6;

void check(int code) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommunicationError(fmt::format("MPI: {}", std::string(text, size_t(length))));
}

struct Place {
  MessageWorld& control;
  std::shared_ptr<Communicator> processes;  // in MPI's order
  double timeout_s;
  int ranks_each;  // of a process

  int process_of(int rank) const { return rank / ranks_each; }
};

class MpiChannel final : public Channel {
 public:
  MpiChannel(const Place& place, std::unique_ptr<Channel> sockets, std::string name, std::vector<int> members,
             int rank, int number)
      : place_(place),
        sockets_(std::move(sockets)),
        name_(std::move(name)),
        members_(std::move(members)),
        rank_(rank),
        number_(number) {}

  void exchange(std::span<const Sent> sent, std::span<const Received> received,
                const char* operation) override {
    if (place_.control.aborted()) stop(operation);
    requests_.clear();
    peers_.clear();
    const auto small_received = start(received, [&](const Received& part, int peer, MPI_Request& request) {
      return MPI_Irecv(part.data, int(part.bytes), MPI_BYTE, place_.process_of(peer), tag_of(peer, rank_),
                       MPI_COMM_WORLD, &request);
    });
    const auto small_sent = start(sent, [&](const Sent& part, int peer, MPI_Request& request) {
      return MPI_Isend(part.data, int(part.bytes), MPI_BYTE, place_.process_of(peer), tag_of(rank_, peer),
                       MPI_COMM_WORLD, &request);
    });
    sockets_->exchange(small_sent, small_received, operation);
    complete(operation);
  }

 private:
  // Calls MPI for the large ones of `parts`, and returns the small ones.
  template <class Part, class Call>
  std::vector<Part> start(std::span<const Part> parts, Call&& call) {
    std::vector<Part> small;
    for (const Part& part : parts) {
      if (part.bytes <= kMostOverSockets) {
        small.push_back(part);
        continue;
      }
      peers_.push_back(members_[size_t(part.peer)]);
      check(call(part, peers_.back(), requests_.emplace_back(MPI_REQUEST_NULL)));
    }
    return small;
  }

  int tag_of(int from, int to) const {
    const int each = place_.ranks_each;
    return (number_ * each + from % each) * each + to % each;
  }

  void complete(const char* operation) {
    // Naps end in time: by default they may take 50,000 ns longer.
    [[maybe_unused]] thread_local const int set = prctl(PR_SET_TIMERSLACK, 1000);
    std::vector<int> indices(requests_.size());
    for (double moved_s = now_s(); true;) {
      int count = 0;
      check(
          MPI_Testsome(int(requests_.size()), requests_.data(), &count, indices.data(), MPI_STATUSES_IGNORE));
      if (count == MPI_UNDEFINED) return;
      if (place_.control.aborted()) stop(operation);
      if (count > 0) moved_s = now_s();
      const double waited_s = now_s() - moved_s;
      if (waited_s > place_.timeout_s)
        throw CommunicationError(
            fmt::format("timeout after {} s in {}", place_.timeout_s, describe(operation)));
      std::this_thread::sleep_for(
          std::chrono::duration<double>(std::clamp(waited_s / 2, kLeastNap_s, kLongestNap_s)));
    }
  }

  [[noreturn]] void stop(const char* operation) const {
    throw CommunicationError(
        fmt::format("stopped while in {}: {}", describe(operation), place_.control.reason()));
  }

  std::string describe(const char* operation) const {
    for (size_t i = 0; i < peers_.size(); ++i)
      if (requests_[i] != MPI_REQUEST_NULL) return describe_wait(operation, name_, rank_, peers_[i]);
    return fmt::format("{} of group {}, rank {}", operation, name_, rank_);
  }

  const Place& place_;
  const std::unique_ptr<Channel> sockets_;
  const std::string name_;
  const std::vector<int> members_;
  const int rank_;    // of the run
  const int number_;  // of the group
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;  // by request: ranks of the run
};

class MpiWorld final : public MessageWorld {
 public:
  explicit MpiWorld(Place place) : place_(std::move(place)) {}
  MpiWorld(const MpiWorld&) = delete;
  // Finalising waits for every process, so all have to be there.
  ~MpiWorld() override {
    if (std::uncaught_exceptions() > 0 || aborted()) return;
    try {
      place_.processes->barrier();
      MPI_Finalize();
    } catch (const CommunicationError&) {  // one of them is lost
    }
  }

  // The first member numbers the group. Groups with other first members have other numbers. Within a process
  // no message needs MPI.
  std::unique_ptr<Channel> channel(int world_rank, const std::vector<int>& members,
                                   const std::string& name) override {
    auto sockets = place_.control.channel(world_rank, members, name);
    if (std::all_of(members.begin(), members.end(),
                    [&](int r) { return place_.process_of(r) == place_.processes->rank(); }))
      return sockets;
    const int64_t each = place_.ranks_each;
    int64_t number = next_++ * place_.processes->size() * each + world_rank;
    place_.control.communicator(world_rank, members, "number of " + name)
        ->broadcast(&number, sizeof number, 0);
    int found = 0;
    int* most = nullptr;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    if (found == 0 || (number + 1) * each * each > *most)
      throw RunError("MPI has too few tags for the groups of this run: --transport sockets does without");
    return std::make_unique<MpiChannel>(place_, std::move(sockets), name, members, world_rank, int(number));
  }
  void abort(const std::string& reason) override { place_.control.abort(reason); }
  bool aborted() const override { return place_.control.aborted(); }
  std::vector<int> local_ranks() const override { return place_.control.local_ranks(); }

 private:
  const Place place_;
  std::atomic<int64_t> next_{0};
};

}  // namespace
}  // namespace mpt::runtime

extern "C" __attribute__((visibility("default"))) mpt::runtime::World* mpt_make_mpi_world_1(
    mpt::runtime::MessageWorld& control, const std::shared_ptr<mpt::runtime::Communicator>& processes,
    std::chrono::milliseconds timeout, std::string& said) {
  int level = MPI_THREAD_SINGLE, rank = -1, size = 0, length = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  MPI_Get_library_version(text, &length);
  said = std::string(text, size_t(length));
  said = said.substr(0, said.find_first_of(",\n"));
  if (level == MPI_THREAD_MULTIPLE && rank == processes->rank() && size == processes->size())
    return new mpt::runtime::MpiWorld({control, processes, std::chrono::duration<double>(timeout).count(),
                                       int(control.local_ranks().size())});
  said += level != MPI_THREAD_MULTIPLE
              ? " does not permit calls of several threads"
              : fmt::format(" has {} processes and calls this one {}, the launcher {} and {}", size, rank,
                            processes->size(), processes->rank());
  return nullptr;
}
